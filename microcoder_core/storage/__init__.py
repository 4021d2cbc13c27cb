"""Data sets, atomic outputs: what a killed stage leaves never looks finished."""
