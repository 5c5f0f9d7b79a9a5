package redistest

import (
	"testing"
	"time"
)

func TestServer(t *testing.T) {
	s := Start(t)
	c := s.Client(t)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if s.pingWithin(50 * time.Millisecond) {
		t.Error("a stopped server answers")
	}
	s.Cont()
	if got := c.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("after Cont: k = %q, want v", got)
	}
	s.Kill()
	if s.answers() {
		t.Error("a killed server answers")
	}
	s.Restart(t)
	if n := s.Client(t).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("after Restart: %d keys, want 0", n)
	}
}

// TestCluster moves a slot with two keys. What else a Cluster and Sentinels are told
// is put to the test by package topology.
func TestCluster(t *testing.T) {
	nodes := StartCluster(t, 3)
	if len(nodes) != 3 {
		t.Fatalf("%d nodes, want 3", len(nodes))
	}
	first := nodes[0].Client(t)
	for _, key := range []string{"{b}1", "{b}2"} { // in the slot 3300
		if err := first.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n := MoveSlots(t, nodes, nodes[0], nodes[1], 3300, 3301); n != 2 {
		t.Errorf("%d keys moved, want 2", n)
	}
	if got := nodes[1].Client(t).Get(t.Context(), "{b}2").Val(); got != "v" {
		t.Errorf("after the move: %q, want v", got)
	}
}

func (s *Server) pingWithin(d time.Duration) bool {
	answered := make(chan bool, 1)
	go func() { answered <- s.answers() }()
	select {
	case ok := <-answered:
		return ok
	case <-time.After(d):
		<-answered
		return false
	}
}

// TestHasEnded has a server that ends with a test.
func TestHasEnded(t *testing.T) {
	var address string
	t.Run("a test", func(t *testing.T) {
		address = Start(t).Addr
		if HasEnded(address) {
			t.Error("the server has ended while its test runs")
		}
	})
	if !HasEnded(address) {
		t.Error("the server of a test that has ended is said to run")
	}
}
