"""What the package's programs become on a GPU, found by compiling them on a machine without one."""
