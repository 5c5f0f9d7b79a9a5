package replay

import (
	"io"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/order"
)

// reading says how logs are read.
type reading struct {
	logs     []string
	stdin    io.Reader
	prepare  func(*accesslog.Line) // see accesslog.Options
	reorder  time.Duration
	queued   int64 // bytes that a request takes while it waits for those that came before it
	memory   int64 // of which requests that wait take an eighth at most
	progress func(accesslog.Progress)
}

// readInOrder passes what item makes of each request of logs to take, in the order in which the requests came. It returns
// what was read, and how many requests came late.
func readInOrder[T any](r reading, item func(*accesslog.Line) T, take func(at int64, v T) error) (accesslog.Report, int64, error) {
	reader, err := accesslog.Open(r.logs, accesslog.Options{Stdin: r.stdin, Prepare: r.prepare})
	if err != nil {
		return accesslog.Report{}, 0, err
	}
	queue := order.New[T](r.reorder, int(max(r.memory/8/r.queued, 1000)))
	takeAll := func() error {
		for at, v, ok := queue.Next(); ok; at, v, ok = queue.Next() {
			if err := take(at, v); err != nil {
				return err
			}
		}
		return nil
	}
	n := 0
	for l := range reader.All() {
		queue.Add(l.Start, l.End, item(l))
		if err := takeAll(); err != nil {
			return accesslog.Report{}, 0, err
		}
		if n++; n%1024 == 0 && r.progress != nil {
			r.progress(reader.Progress())
		}
	}
	if err := reader.Err(); err != nil {
		return accesslog.Report{}, 0, err
	}
	queue.Close()
	err = takeAll()
	late, _ := queue.Late()
	return reader.Report(), late, err
}

// newLog returns what a report says of the logs that were read.
func newLog(files []string, r *accesslog.Report, late, were429 int64) Log {
	l := Log{Files: files, Lines: r.Lines, Requests: r.Requests, Other: r.Other, Broken: r.Broken, Late: late, Were429: were429}
	for _, b := range r.First {
		l.First = append(l.First, b.String())
	}
	return l
}
