//go:build upgrading

package upgrading

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// Commits by the format of counters that they have. Those of one format count together, however far they are apart.
const (
	unnumbered = "4b16e1b49ef0b51e33046a0329807e4dd4e9ba7c" // names of keys have no number yet
	format1    = "f772094887a7baf3d246b371ba7d095278bdb1c1" // the last one with format 1
	format2    = "ac6c48c0e7cad8e43580b9ec37440834c439ea99" // the first one with format 2
)

// TestRollToAnotherFormat replaces three Caddys by those of another format, and back, one after the other.
func TestRollToAnotherFormat(t *testing.T) { roll(t, former(t, format1), 2) }

// TestRollWithinAFormat does so with Caddys of the same format: exactly the limit passes.
func TestRollWithinAFormat(t *testing.T) { roll(t, former(t, format2), 1) }

// roll replaces the Caddys of a former binary by those of this build, and back. At each step clients begin to ask for one more key.
// While all that run have one of the n formats, a key is denied everywhere once that format has admitted its limit.
func roll(t *testing.T, former string, n int) {
	f := newFleet(t, redistest.Start(t), former)
	f.use("former")
	f.exhaust("former")
	f.passed("former", limit, limit)
	for i := range f.sites {
		f.use(fmt.Sprint("there", i))
		f.replace(i, caddyrun.Binary(t))
	}
	f.use("this")
	f.exhaust(f.keys...)
	f.passed("former", n*limit, n*limit)
	f.passed("this", limit, limit)
	for i := range f.sites {
		f.use(fmt.Sprint("back", i))
		f.replace(i, former)
	}
	f.exhaust(f.keys...)
	f.passed("former", n*limit, n*limit)
	f.passed("this", n*limit, n*limit)
	for i := range f.sites {
		f.passed(fmt.Sprint("there", i), n*limit, n*limit)
		f.passed(fmt.Sprint("back", i), limit, n*limit)
	}
}

// TestRollWithHalvedLimits replaces three Caddys by those of another format while an override halves the limits: what passes is the
// limit.
func TestRollWithHalvedLimits(t *testing.T) {
	f := newFleet(t, redistest.Start(t), former(t, format1))
	for zone := range zones {
		if status, answer := f.runs[0].Tell(t, http.MethodPost, "/sliding_window/overrides/set", "application/json", fmt.Sprintf(`{"zone":%q,"all":true,"factor":0.5}`, zone)); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	for _, p := range f.runs {
		caddyrun.Eventually(t, 20*time.Second, "all Caddys know the overrides", func() bool {
			return strings.Contains(caddyrun.Fetch(t, http.DefaultClient, "http://"+p.Admin+"/sliding_window/status"), fmt.Sprintf(`"count":%d`, len(zones)))
		})
	}
	f.use("anna")
	f.exhaust("anna")
	f.passed("anna", limit/2, limit/2)
	for i := range f.sites {
		f.replace(i, caddyrun.Binary(t))
	}
	f.exhaust("anna")
	f.passed("anna", limit, limit)
}

// TestFormats has three Caddys of three formats on one Redis: what passes is three times the limit.
func TestFormats(t *testing.T) {
	f := newFleet(t, redistest.Start(t), former(t, unnumbered))
	f.replace(1, former(t, format1))
	f.replace(2, caddyrun.Binary(t))
	f.use("anna")
	f.exhaust("anna")
	f.passed("anna", 3*limit, 3*limit)
}

// former returns a binary of a former commit.
func former(t *testing.T, commit string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(cache, "sliding_window", "caddy-"+commit)
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	script := `set -eo pipefail
git -C "$1" cat-file -e "$2^{commit}" || { echo "the history has no commit $2: git fetch --unshallow" >&2; exit 1; }
git -C "$1" archive "$2" | tar -x -C "$3"
cd "$3"
go build -o "$4" ./cmd/caddy`
	cmd := exec.Command("bash", "-c", script, "bash", root, commit, t.TempDir(), binary) //nolint:gosec // of a test
	cmd.Env = caddyrun.Environment
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}
