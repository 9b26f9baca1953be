"""Fails if a library is larger than a number of bytes:

    run_size_test.py LIBRARY BYTES

frontend/run/CMakeLists.txt lists what is compiled for size; new sources belong there unless they are hot loops.
"""
import os
import sys

library, limit = sys.argv[1], int(sys.argv[2])
size = os.path.getsize(library)
print(f"{os.path.basename(library)} has {size:,} bytes of {limit:,}")
sys.exit(size >= limit)
