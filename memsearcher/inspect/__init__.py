"""Look into recorded trajectories: in a notebook, as one HTML file, as data frames.

`inspect(run)` gives the widget, `write_page` the file, `trajectories_df`, `turns_df` and `passages_df`
the frames. All of them read the record alone; nothing here runs a model.
"""

from memsearcher.inspect.export import write_page
from memsearcher.inspect.frames import passages_df, trajectories_df, turns_df
from memsearcher.inspect.widget import Inspector, inspect

__all__ = ["Inspector", "inspect", "passages_df", "trajectories_df", "turns_df", "write_page"]
