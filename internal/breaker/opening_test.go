package breaker_test

import (
	"errors"
	"testing"
	"time"
)

// A success of another request while the breaker opens, by failures or by doubt, neither keeps this outage's requests from
// failing at once, nor those of any later outage.
func TestBreakerSuccessWhileOpening(t *testing.T) {
	for name, open := range map[string]func(b *guarded){
		"failures": func(b *guarded) { b.fail(3) },
		"doubt":    func(b *guarded) { b.store.set(errDown); b.ForceOpen("", errors.New("others say so")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *guarded) {
				b.OnOpening(func() {
					b.store.set(nil)
					if asked, err := b.take(); !asked || err != nil {
						b.Errorf("Take while it opens = %v (asked: %v), want a success", err, asked)
					}
					b.store.set(errDown)
				})
				for range 3 { // outages
					open(b)
					b.wantOpen(true)
					b.store.set(nil)
					time.Sleep(time.Second)
					b.wantOpen(false)
				}
			})
		})
	}
}

// The same for a part of a store.
func TestPartSuccessWhileOpening(t *testing.T) {
	inPartedBubble(t, func(b *partedBreaker) {
		b.OnOpening(func() {
			b.store.set()
			b.wantAsked(true, "a")
			b.store.set("a")
		})
		for range 3 { // outages
			b.store.set("a")
			for range 3 {
				b.wantAsked(true, "a")
			}
			b.wantAsked(false, "a")
			b.wantAsked(true, "b")
			b.store.set()
			time.Sleep(time.Second)
			b.wantAsked(true, "a")
		}
	})
}
