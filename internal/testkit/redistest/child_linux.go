package redistest

import "syscall"

// childAttr lets the server die with the test that started it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
