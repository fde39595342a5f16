"""Where a request that came whole has its body. Apart, because the library reads it and loads no server."""

from typing import Final

WHOLE_BODY: Final = "whole_body"
"""In the state of the request's scope."""
