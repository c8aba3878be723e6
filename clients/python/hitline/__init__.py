"""Client of the hitline lookup server: see hitline.client, and for routers hitline.holders and hitline.routing."""

# Their __all__ have the names.
from hitline.client import *  # noqa: F403
from hitline.holders import *  # noqa: F403
from hitline.routing import *  # noqa: F403
