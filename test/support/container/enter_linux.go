package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes returns the namespaces of a container. Root only needs one for mounts, and becomes another user by itself; anybody
// else appears as that user in a user namespace.
func attributes(o *Options) *syscall.SysProcAttr {
	if os.Getuid() == 0 {
		return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: o.UID, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		// For what enter does; the program loses them when it starts, because its user is not root.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT},
	}
}

// Enter becomes the program of a container if this process was started for that, and otherwise returns. TestMain calls it first:
//
//	func TestMain(m *testing.M) { container.Enter(); os.Exit(cluster.RunInNamespace(m)) }
func Enter() {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	err := enter(text)
	fmt.Fprintln(os.Stderr, "container:", err)
	os.Exit(125)
}

func enter(text string) error {
	// Each thread has its own credentials and its own parent-death signal.
	runtime.LockOSThread()
	var o Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := bind(o.Root, o.Root); err != nil {
		return err
	}
	for _, system := range systems {
		if err := unix.Mount(system, filepath.Join(o.Root, system), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", system, err)
		}
	}
	for target, source := range o.Mounts {
		if err := bind(source, filepath.Join(o.Root, target)); err != nil {
			return err
		}
	}
	if err := errors.Join(unix.Chroot(o.Root), unix.Chdir("/")); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if os.Getuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(0), syscall.Setuid(o.UID)); err != nil {
			return fmt.Errorf("become the user %d: %w", o.UID, err)
		}
	}
	// The signal was forgotten with the user.
	err := errors.Join(
		unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0),
	)
	if err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", o.Args[0], syscall.Exec(o.Args[0], o.Args, o.Env)) //nolint:gosec // the caller's choice
}

// bind mounts a directory read-only.
func bind(source, target string) error {
	err := unix.Mount(source, target, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	}
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}
