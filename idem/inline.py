"""The calls that an application's own code makes, under a lease: `charge.inline(…)` returns them."""

from idem.application.inline import AsyncInlineCall as AsyncInlineCall
from idem.application.inline import InlineCall as InlineCall
