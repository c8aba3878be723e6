"""Imported by every Python process of an engine as it starts.

For a second after each message, processes of an engine with several ranks wait by calling
sched_yield in a loop. With more of them than cores that keeps all others, Mooncake's
threads too, from running, for up to 30 s. Here they sleep instead.
"""

import os
import time

YIELD = 0.0005  # seconds

os.sched_yield = lambda: time.sleep(YIELD)
