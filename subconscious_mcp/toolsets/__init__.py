"""The tools that agents see, one module a toolset. A tool is: parse, one call, render."""
