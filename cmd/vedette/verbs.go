package main

import (
	"github.com/alecthomas/kong"

	"github.com/vedette/vedette/infer/analyze"
	"github.com/vedette/vedette/infer/perf"
)

// tools are the verbs that need no running appliance.
func tools(executable string) []kong.Option {
	return []kong.Option{
		kong.DynamicCommand("perf", "Measure how fast an inference server answers.", "", new(perf.Command)),
		kong.DynamicCommand("analyze", "Find the configuration a model runs best with.", "", new(analyze.Command)),
		kong.DynamicCommand("eval", "Measure detection and tracking against annotations.", "", evalVerbs(executable)),
	}
}
