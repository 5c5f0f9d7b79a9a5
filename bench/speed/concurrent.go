package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

const (
	nginxAlone  = "nginx, no limit"
	nginxLimits = "nginx, limit_conn"
	aLimit      = "limit 100 1m"
	atOnce      = "concurrent 100"
)

// openOverHTTP limits how many requests are open at once, alone and beside a limit, and has nginx do so.
var openOverHTTP = table{
	name:    "httpconcurrent",
	title:   "Requests that are limited at the same time, 64 connections, 100,000 keys",
	metrics: httpMetrics,
	about:   "nginx is one process. " + loadAbout,
	ratios: []report.Ratio{
		{Of: "Redis, limit and concurrent", To: "Redis, limit", Aim: report.AtLeast(0.85)},
		{Of: "memory, limit and concurrent", To: "memory, limit", Aim: report.AtLeast(0.85)},
		{Of: "Redis, concurrent", To: "Redis, limit"},
		{Of: "memory, concurrent", To: noDirective},
		{Of: nginxLimits, To: nginxAlone},
	},
	prepare: func(b *bench) ([]variant, error) {
		variants, err := b.sites(keys, 200, []site{
			{noDirective, ""},
			{"memory, limit", ours("memory", aLimit)},
			{"memory, concurrent", ours("memory", atOnce)},
			{"memory, limit and concurrent", ours("memory", aLimit, atOnce)},
			{"Redis, limit", ours("redis", aLimit)},
			{"Redis, concurrent", ours("redis", atOnce)},
			{"Redis, limit and concurrent", ours("redis", aLimit, atOnce)},
		})
		if err != nil {
			return nil, err
		}
		s, err := b.newServer() // which does nothing
		if err != nil {
			return nil, err
		}
		for _, site := range []struct{ name, words string }{{nginxAlone, ""}, {nginxLimits, "limit_conn open 100;"}} {
			c, err := b.newNginx(site.words)
			if err != nil {
				return nil, err
			}
			variants = append(variants, variant{site.name, func() ([]float64, error) { return b.requests(c, s, keys, 200) }})
		}
		return variants, nil
	},
}

// newNginx starts an nginx of one process with one site, until the table is done.
func (b *bench) newNginx(words string) (*caddy, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		return nil, fmt.Errorf("%w; install the package nginx-light", err)
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	c := &caddy{addr: addr}
	dir, err := os.MkdirTemp(b.dir, "nginx")
	if err != nil {
		return nil, err
	}
	// return would answer before a limit is looked at.
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 512; }
http {
	access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	keepalive_requests 1000000000;
	limit_conn_zone $http_x_key zone=open:64m;
	server { listen %[2]s; root %[1]s; location / { %[3]s try_files /ok =404; } }
}
`, dir, c.addr, words)
	if err := os.WriteFile(filepath.Join(dir, "ok"), []byte("ok"), 0o600); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	c.run = exec.Command(path, "-c", file) //nolint:gosec // what is compared
	c.run.SysProcAttr = childAttr()
	if err := c.run.Start(); err != nil {
		return nil, err
	}
	b.atEnd(func() { _ = c.run.Process.Kill(); _ = c.run.Wait() })
	for range 200 {
		if conn, err := net.Dial("tcp", c.addr); err == nil {
			return c, conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("nginx does not listen; see %s/error.log", dir)
}
