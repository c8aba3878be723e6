"""Client of the hitline lookup server: see hitline.client, and hitline.holders for routers."""

# Their __all__ have the names.
from hitline.client import *  # noqa: F403
from hitline.holders import *  # noqa: F403
