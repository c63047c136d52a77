"""Constants of a network or a device from measurements, and predictions judged by measurements.

live    a network and the software on it, measured by processes
tables  a network, from tables of measured collectives
device  what kernels reach, measured on one device
judge   predictions beside measurements

All fit by `least_squares`, write by `toml_text`, and say by `confidence` how far predictions are off.
"""
