package enforce

import (
	"testing"
	"time"
)

// An order that was under way when another took its place does not come back.
func TestOrderUnderWay(t *testing.T) {
	var e Sync
	x, y := NewOrder(time.Now(), "shadow", time.Now().Add(time.Hour), ""), NewOrder(time.Now(), "on", time.Now().Add(time.Hour), "")
	if isNew, _ := e.Hear(x); !isNew {
		t.Fatal("the first order is not new")
	}
	e.Order(y)
	e.Sent(y)
	if isNew, _ := e.Hear(x); isNew {
		t.Error("the order before the last one is obeyed again")
	}
	if isNew, _ := e.Hear(y); isNew {
		t.Error("its own order is new")
	}
}
