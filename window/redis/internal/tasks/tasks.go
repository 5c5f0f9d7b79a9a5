// Package tasks runs what goes on apart from requests.
package tasks

import (
	"context"
	"sync"
)

// Group runs tasks apart from requests, until they are closed.
type Group struct {
	mu     sync.Mutex // guards closed, and the group's changes from none to one
	closed bool
	group  sync.WaitGroup
}

// Run runs f in the background. It reports false, and does not run f, once the tasks are closed.
func (t *Group) Run(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.group.Go(f)
	}
	return !t.closed
}

// Close returns when all that runs has ended.
func (t *Group) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.group.Wait()
}

// Background holds tasks that end with the store.
type Background struct {
	Group
	Context context.Context // ends with the store
	stop    context.CancelFunc
}

// NewBackground returns one.
func NewBackground() *Background {
	b := new(Background)
	b.Context, b.stop = context.WithCancel(context.Background())
	return b
}

// Close ends what runs, and returns when it has ended.
func (b *Background) Close() {
	b.stop()
	b.Group.Close()
}
