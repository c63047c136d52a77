"""Transport between the ranks of one host, through memory that they share.  Open `transport` first.

transport  steps of programs as messages in mailboxes
mailbox    messages from one rank to another: small ones in their slot, others in the arena of the sender
arena      memory for messages on their way
segment    the memory itself: a part for each rank, which all have mapped
doorbell   a sleeping rank, woken when a message comes
"""

from collectives.transports.shared_memory.transport import SharedMemoryTransport

__all__ = ["SharedMemoryTransport"]
