package handlertest

import (
	"os"
	"testing"

	_ "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

func TestMain(m *testing.M) { os.Exit(caddyrun.Main(m, func() {})) }
