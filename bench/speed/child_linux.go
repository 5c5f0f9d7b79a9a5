package main

import "syscall"

// childAttr lets a process die with the one that started it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
