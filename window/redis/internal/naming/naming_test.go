package naming

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const secret = "a secret of a fleet"

// Every kind of key has the name that the documentation says.
func TestNames(t *testing.T) {
	plain, hashed := &New("sw", "", "")[0], &New("sw", secret, "")[0]
	// printf %s 192.0.2.1 | openssl dgst -sha256 -hmac "a secret of a fleet" -binary | base64 | tr +/ -_ | tr -d =
	const address = "h9pRFs6LX38n518cEstBN8zfYxDEI-ijThp8p7aGwDc"
	one := windowtest.Charge("zone", "192.0.2.1", 5, time.Hour)
	packed := one
	packed.Pack, packed.Algorithm = 1_000_000, window.GCRA{}
	key := func(n *Naming, c window.Charge) string { return string(n.AppendKey([]byte("before "), &c)) }
	for _, c := range []struct{ got, want string }{
		{key(plain, one), "before sw:2-zset:zone:192.0.2.1"},
		{key(hashed, one), "before sw:2-zset:zone:" + address},
		{key(plain, packed), "before sw:2-pack-gcra:zone:20834:20747"},
		{key(hashed, packed), "before sw:2-pack-gcra:zone:20834:15841"},
		{string(plain.AppendNative(nil, &packed)), "sw:2-native-gcra:zone:192.0.2.1"},
		{string(hashed.AppendNative(nil, &packed)), "sw:2-native-gcra:zone:" + address},
		{plain.KeyBeside("fleet"), "sw:2-{fleet}"},
		{plain.LastingKey("overrides"), "sw:{overrides}"},
		{plain.Fingerprint(), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if plain.Hashes() || !hashed.Hashes() {
		t.Error("only names with a secret hash")
	}
}

// While the secret changes, a counter has both names, the former last. The fingerprint tells secrets apart and holds none.
func TestTwoSecrets(t *testing.T) {
	both := New("sw", secret, "former")
	one := windowtest.Charge("zone", "key", 5, time.Hour)
	for i, s := range []string{secret, "former"} {
		alone := New("sw", s, "")
		if len(alone) != 1 || len(both) != 2 {
			t.Fatalf("%d names with one secret, %d with two", len(alone), len(both))
		}
		if got, want := string(both[i].AppendKey(nil, &one)), string(alone[0].AppendKey(nil, &one)); got != want {
			t.Errorf("name %d: %q, want %q", i, got, want)
		}
		if f := both[i].Fingerprint(); f != alone[0].Fingerprint() || len(f) != 8 || f == both[1-i].Fingerprint() {
			t.Errorf("fingerprint %q of secret %d, and %q of the other", f, i, both[1-i].Fingerprint())
		}
	}
}

// Keys of any length are hashed whole, though a block of them at a time, and a state that was used leaves nothing behind.
func TestSum(t *testing.T) {
	n := &New("sw", secret, "")[0]
	for _, size := range []int{1_000, 0, 1, 127, 128, 129, 256} {
		key := strings.Repeat("k", size)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(key))
		if got := n.Sum(key); string(got[:]) != string(mac.Sum(nil)) {
			t.Errorf("a key of %d bytes: another sum than that of crypto/hmac", size)
		}
	}
	if got := New("sw", "", "")[0].Sum("key"); got != sha256.Sum256([]byte("key")) {
		t.Error("without a secret, the sum is not SHA-256")
	}
}

// The field of a packed counter has no bit that chooses its hash.
func TestPackedField(t *testing.T) {
	n := &New("sw", "", "")[0]
	c := windowtest.Charge("zone", "192.0.2.1", 5, time.Hour)
	sum, field := sha256.Sum256([]byte(c.Key)), n.PackedField(&c)
	if string(field[:]) != string(sum[8:20]) {
		t.Errorf("field %s, want bytes 8 to 20 of %s", base64.RawURLEncoding.EncodeToString(field[:]), base64.RawURLEncoding.EncodeToString(sum[:]))
	}
}

func BenchmarkKeyName(b *testing.B) {
	for name, s := range map[string]string{"plain": "", "hashed": secret} {
		b.Run(name, func(b *testing.B) {
			naming, one := &New("sw", s, "")[0], windowtest.Charge("per_client", "192.0.2.1", 1, time.Minute)
			buf := make([]byte, 0, 256)
			b.ReportAllocs()
			for b.Loop() {
				buf = naming.AppendKey(buf[:0], &one)
			}
		})
	}
}
