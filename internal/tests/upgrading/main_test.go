package upgrading

import (
	"os"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

func TestMain(m *testing.M) { os.Exit(caddyrun.Main(m, func() {})) }
