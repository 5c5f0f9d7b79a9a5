package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakelog"
)

// onLogs reads access logs with caddy sliding-window suggest, and with GoAccess, which people use to look at them.
var onLogs = table{
	name:    "logs",
	title:   "Lines of an access log per second of processor time",
	metrics: []string{"lines/s of a core"},
	about:   "200,000 lines of 20,000 addresses, made by internal/testkit/fakelog. Whole runs of the programs, from their start to the report, with the processor time of all their threads.",
	counted: true,
	ratios: []report.Ratio{
		{Of: "suggest, combined", To: "GoAccess, combined", Aim: report.AtLeast(1)},
		{Of: "suggest, Caddy's JSON", To: "GoAccess, Caddy's JSON", Aim: report.AtLeast(1)},
	},
	prepare: func(b *bench) ([]variant, error) {
		goaccess, err := exec.LookPath("goaccess")
		if err != nil {
			return nil, fmt.Errorf("%w; install the package goaccess", err)
		}
		if err := b.build(); err != nil {
			return nil, err
		}
		caddy := filepath.Join(b.dir, "caddy")
		var variants []variant
		lines := b.scale(200_000)
		for _, f := range []struct {
			name, word string
			combined   bool
		}{{"combined", "COMBINED", true}, {"Caddy's JSON", "CADDY", false}} {
			log := filepath.Join(b.dir, f.word+".log")
			if err := writeLog(log, fakelog.Options{Lines: lines, Keys: b.scale(20_000), Combined: f.combined}); err != nil {
				return nil, err
			}
			report := filepath.Join(b.dir, f.word+".json")
			variants = append(variants,
				program("suggest, "+f.name, lines, caddy, "sliding-window", "suggest", log),
				program("GoAccess, "+f.name, lines, goaccess, log, "--no-global-config", "--log-format="+f.word, "-o", report))
		}
		return variants, nil
	},
}

// writeLog writes a log to a file.
func writeLog(name string, o fakelog.Options) error {
	file, err := os.Create(name) //nolint:gosec // in our own directory
	if err != nil {
		return err
	}
	if err := fakelog.Write(file, o); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// program measures whole runs of a program on a log.
func program(name string, lines int, path string, args ...string) variant {
	return variant{name, func() ([]float64, error) {
		cmd := exec.Command(path, args...) //nolint:gosec // what is compared
		out, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		return []float64{float64(lines) / cpu.Seconds()}, nil
	}}
}
