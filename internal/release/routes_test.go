package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// most is how long a route from nothing to the first 429 may take, downloads apart.
const most = 2 * time.Minute

// checkRoutes follows the ways to a Caddy with this plugin, each from nothing to the first denied request: from an archive,
// a deb, a build with xcaddy, and an image.
func checkRoutes(t *testing.T, repository, dist string) {
	for _, route := range []struct {
		name   string
		follow func(t *testing.T, repository, dist string) *server
	}{{"archive", fromArchive}, {"deb", fromDeb}, {"xcaddy", fromXcaddy}, {"image", fromImage}} {
		t.Run(route.name, func(t *testing.T) {
			start, before := time.Now(), processor(t)
			s := route.follow(t, repository, dist)
			s.deny(t)
			took, work := time.Since(start), processor(t)-before
			t.Logf("FIRST 429 by %s: %.1f s, of %.1f s of processor time", route.name, took.Seconds(), work.Seconds())
			// A machine that does other things, too, is slow for another reason.
			if took > most && work/time.Duration(runtime.NumCPU()) > most {
				t.Errorf("%s takes %s to the first 429, want %s at most", route.name, took, most)
			}
		})
	}
}

// processor returns the processor time of all commands that have ended.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func fromArchive(t *testing.T, _, dist string) *server {
	dir := t.TempDir()
	run(t, dir, "tar", "xzf", find(t, dist, "*_linux_amd64.tar.gz"))
	s := prepare(t, read(t, dir, "Caddyfile.example"))
	s.start(t, exec.Command(filepath.Join(dir, "caddy"), "run", "--config", s.config))
	return s
}

// fromDeb runs the command of the unit, on the example that the package brings.
func fromDeb(t *testing.T, _, dist string) *server {
	root := install(t, find(t, dist, "*_amd64.deb"))
	commands := regexp.MustCompile(`(?m)^ExecStart=(.+)$`).FindAllStringSubmatch(read(t, root, dropInPath), -1)
	if len(commands) != 1 {
		t.Fatalf("the drop-in has the commands %q", commands)
	}
	s := prepare(t, read(t, root, docPath, "Caddyfile.example"))
	words := strings.Fields(strings.ReplaceAll(commands[0][1], "/etc/caddy/Caddyfile", s.config))
	s.start(t, exec.Command(filepath.Join(root, words[0]), words[1:]...))
	return s
}

// fromXcaddy builds a clone with make build, which is xcaddy.
func fromXcaddy(t *testing.T, repository, _ string) *server {
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, ".", "git", "clone", "-q", repository, clone)
	run(t, clone, "make", "build")
	s := prepare(t, read(t, clone, "Caddyfile.example"))
	s.start(t, exec.Command(filepath.Join(clone, "caddy"), "run", "--config", s.config))
	return s
}

// fromImage does what the Dockerfile says in folders, as there is no engine for containers, and runs its command as its
// user. Its check of health fails before, and passes after.
func fromImage(t *testing.T, repository, _ string) *server {
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, ".", "git", "clone", "-q", repository, clone)
	image := followDockerfile(t, clone, map[string]string{"TARGETOS": "linux", "TARGETARCH": "amd64"})
	s := prepare(t, read(t, image.path("/etc/caddy/Caddyfile")))
	if len(image.health) != 2 || image.health[0] != "CMD" || len(image.cmd) == 0 || image.cmd[0] != "caddy" {
		t.Fatalf("the image runs %q, and checks its health by %q", image.cmd, image.health)
	}
	health := strings.ReplaceAll(image.health[1], "127.0.0.1:2019", s.admin)
	if health == image.health[1] {
		t.Errorf("the check of health does not ask the admin endpoint: %q", health)
	}
	if out, err := exec.Command("sh", "-c", health).CombinedOutput(); err == nil {
		t.Errorf("before Caddy runs, the check of health passes: %s", out)
	}
	args := strings.Fields(strings.ReplaceAll(strings.Join(image.cmd[1:], " "), "/etc/caddy/Caddyfile", s.config))
	cmd := exec.Command(image.path("/usr/bin/caddy"), args...)
	var user, group uint32
	if n, err := fmt.Sscanf(strings.Join(image.user, " "), "%d:%d", &user, &group); n != 2 || user == 0 || group == 0 {
		t.Fatalf("the image runs as the user %q, %v", image.user, err)
	}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: group}}
	}
	s.start(t, cmd)
	if out, err := exec.Command("sh", "-c", health).CombinedOutput(); err != nil {
		t.Errorf("while Caddy runs, the check of health fails: %v\n%s", err, out)
	}
	return s
}

// server is a Caddy with the Caddyfile of the example, on free ports.
type server struct{ config, home, site, admin string }

// prepare writes a Caddyfile with free ports in the place of its own, and a folder in which any user may run Caddy.
func prepare(t *testing.T, caddyfile string) *server {
	t.Helper()
	s := &server{home: openFolder(t), site: free(t), admin: free(t)}
	s.config = filepath.Join(s.home, "Caddyfile")
	if !strings.Contains(caddyfile, "\n:8080 {\n") {
		t.Fatalf("the example is not on port 8080:\n%s", caddyfile)
	}
	caddyfile = "{\n\tadmin " + s.admin + "\n}\n" + strings.Replace(caddyfile, "\n:8080 {\n", "\nhttp://"+s.site+" {\n", 1)
	write(t, s.home, map[string]string{"Caddyfile": caddyfile})
	if err := os.Chmod(s.home, 0o777); err != nil {
		t.Fatal(err)
	}
	return s
}

// free returns an address on which nothing listens.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// start runs Caddy until the end of the test, and waits until its site answers.
func (s *server) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "HOME="+s.home, "XDG_CONFIG_HOME="+s.home+"/config", "XDG_DATA_HOME="+s.home+"/data")
	cmd.Dir = s.home
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for deadline := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		connection, err := net.Dial("tcp", s.site)
		if err == nil {
			_ = connection.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", cmd, err, &log)
		default:
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			t.Fatalf("%s does not answer: %v", cmd, err)
		}
	}
}

// deny sends requests until the limit of the example, 10, is passed.
func (s *server) deny(t *testing.T) {
	t.Helper()
	for i := range 11 {
		want := http.StatusOK
		if i == 10 {
			want = http.StatusTooManyRequests
		}
		answer, err := http.Get("http://" + s.site)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Fatalf("request %d: %d, want %d", i+1, answer.StatusCode, want)
		}
	}
}
