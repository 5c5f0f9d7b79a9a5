package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
)

const (
	growAgain = 5 * time.Second      // from a connection that could not be made to the next attempt
	tellAgain = time.Minute          // without such a connection, until the next one is reported
	lookAgain = 5 * time.Millisecond // for a connection that may be free
)

// Sharing is a hook of the client of one server. If a connection cannot be made while others are
// open, as when maxclients or the open files of this process are used up, the server is not away:
// calls share the connections that are open. One more connection is tried after growAgain, and more
// of them one by one.
type Sharing struct {
	Retry bool                      // whether a pipeline that had no connection may be sent again
	Tell  func(open int, err error) // is told why no more connections can be made, once others answer

	open  atomic.Int64 // connections
	calls atomic.Int64 // that have a connection, or are about to take one
	few   atomic.Bool  // no more calls than connections

	mu      sync.Mutex
	grow    time.Time     // when one more call may pass than there are connections
	refused time.Time     // when a connection could not be made
	cause   error         // of that, until it is told; nil: it need not be told
	left    chan struct{} // closed when a call ends, if a call waits for that; else nil
}

// IsFew reports whether more connections could not be made.
func (s *Sharing) IsFew() bool { return s.few.Load() }

// DialHook implements goredis.Hook.
func (s *Sharing) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		switch {
		case err == nil:
			s.opened(conn)
		case s.open.Load() > 0 && !errors.Is(err, goredis.ErrClosed):
			s.refuse(err)
			return nil, failure.Unshared(err)
		}
		return conn, err
	}
}

func (s *Sharing) opened(conn net.Conn) {
	c, ok := conn.(interface{ OnClose(func()) })
	if !ok {
		return
	}
	s.open.Add(1)
	c.OnClose(func() {
		if s.open.Add(-1) == 0 {
			s.few.Store(false) // there is nothing to share
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grow = time.Time{}
	if time.Since(s.refused) > tellAgain {
		s.few.Store(false)
	}
}

// refuse notes that no more connections can be made for a while.
func (s *Sharing) refuse(err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.refused) > tellAgain {
		s.cause = err
	}
	s.refused, s.grow = now, now.Add(growAgain)
	s.few.Store(true)
}

// answered tells why no more connections can be made: there are others that work.
func (s *Sharing) answered() {
	s.mu.Lock()
	cause := s.cause
	s.cause = nil
	s.mu.Unlock()
	if cause != nil {
		s.Tell(int(s.open.Load()), cause)
	}
}

// enter waits until there is a connection for a call. Undo it with leave.
func (s *Sharing) enter(ctx context.Context) error {
	for {
		n := s.calls.Add(1)
		if !s.few.Load() || n <= max(1, s.open.Load()) {
			return nil
		}
		s.mu.Lock()
		if now := time.Now(); now.After(s.grow) {
			s.grow = now.Add(growAgain)
			s.mu.Unlock()
			return nil
		}
		if s.left == nil {
			s.left = make(chan struct{})
		}
		left := s.left
		s.mu.Unlock()
		s.calls.Add(-1)
		if err := s.wait(ctx, left); err != nil {
			return err
		}
	}
}

// wait waits until a call ends, or for a moment: connections may be closed, too.
func (s *Sharing) wait(ctx context.Context, left chan struct{}) error {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	select {
	case <-left:
	case <-timer.C:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return failure.Unwritten(ctx.Err())
		}
		return failure.Unwritten(failure.ErrShared)
	}
	return nil
}

func (s *Sharing) leave() {
	s.calls.Add(-1)
	if !s.few.Load() {
		return
	}
	s.mu.Lock()
	if s.left != nil {
		close(s.left)
		s.left = nil
	}
	s.mu.Unlock()
}

// share makes a call, and makes it again if it needed a connection of its own that could not be
// made. The function call is told whether it is made again.
func (s *Sharing) share(ctx context.Context, retry bool, call func(again bool) error) error {
	for again := false; ; again = true {
		if err := s.enter(ctx); err != nil {
			return err
		}
		open := s.open.Load()
		err := call(again)
		s.leave()
		if !retry || err == nil || !errors.As(err, new(failure.UnsharedError)) {
			if err == nil && s.few.Load() {
				s.answered()
			}
			return err
		}
		if s.open.Load() < open {
			continue // some that were open had been closed by the server
		}
		if err := s.wait(ctx, nil); err != nil {
			return err
		}
	}
}

// ProcessHook implements goredis.Hook.
func (s *Sharing) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := s.share(ctx, true, func(again bool) error {
			if again {
				clearErrors([]goredis.Cmder{cmd})
			}
			return next(ctx, cmd)
		})
		if err != nil && cmd.Err() == nil {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook. In a Cluster the client itself sends a pipeline again
// that had no connection.
func (s *Sharing) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := s.share(ctx, s.Retry, func(again bool) error {
			if again {
				clearErrors(cmds)
			}
			return next(ctx, cmds)
		})
		if err != nil {
			for _, cmd := range cmds {
				if cmd.Err() == nil && errors.Is(err, failure.ErrShared) {
					cmd.SetErr(err)
				}
			}
		}
		return err
	}
}
