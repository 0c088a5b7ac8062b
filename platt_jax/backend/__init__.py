"""How programs are compiled and run on the machine, and which arrays are on an accelerator."""
