"""Transport through memory that ranks of a host share, and over Gloo between hosts.  Open `transport` first.

transport  steps of programs as messages in mailboxes
mailroom   all mailboxes of a rank
in_flight  what a rank waits for
prepared   which elements each operation of a step reads and writes
mailbox    messages from one rank to another: small ones in their slot, others in the sender's memory
far        mailboxes between hosts, over Gloo
loans      messages that are read where they are
arena      memory for messages on their way, and for tensors
segment    the memory itself: a part for each rank, which all have mapped
doorbell   a sleeping rank, woken when a message comes
"""

from collectives.transports.shared_memory.transport import SharedMemoryTransport

__all__ = ["SharedMemoryTransport"]
