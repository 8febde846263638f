package support

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// CleanEnvironment gives a test program, and the programs that it starts, the same environment whoever runs it: no kubeconfig, login,
// configuration of git, proxy, language, keyring or session of a desktop, and files that others may read. It is for TestMain. A
// program under another name, as testscript runs the same binary, keeps what its script says.
func CleanEnvironment() {
	if !strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test") {
		return
	}
	set := map[string]string{"LC_ALL": "C.UTF-8", "TZ": "UTC", "KUBECONFIG": os.DevNull, "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1", "GATEHOUSE_TOKEN_STORE": "file"}
	// Where Go looks depends on what is removed.
	if dir, err := os.UserCacheDir(); err == nil {
		set["GOCACHE"] = cmp.Or(os.Getenv("GOCACHE"), filepath.Join(dir, "go-build"))
	}
	if dir, err := os.UserConfigDir(); err == nil {
		set["GOENV"] = cmp.Or(os.Getenv("GOENV"), filepath.Join(dir, "go", "env"))
	}
	if os.Getenv("HOME") == "" {
		set["HOME"] = os.TempDir()
	}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); !isKept(name) {
			_ = os.Unsetenv(name) // it is set
		}
	}
	for name, value := range set {
		_ = os.Setenv(name, value) // these are valid names
	}
	setUmask(0o022)
}

// isKept reports whether a variable is of the machine, of Go, or of the tests themselves.
func isKept(name string) bool {
	if slices.Contains([]string{"GOGC", "GOMEMLIMIT", "GOTRACEBACK"}, name) {
		return false // they change what programs do and print
	}
	return strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "CGO_") || strings.HasPrefix(name, "GATEHOUSE_TEST_") || slices.Contains([]string{
		"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TMP", "TEMP", "SYSTEMROOT", "USERPROFILE", "LOCALAPPDATA", "LD_LIBRARY_PATH",
		"KUBERNETES_VERSION", "UPDATE_GOLDEN", "CHROMIUM", "ATTACK_MAX_P99", "ROLLOUT_REQUESTS", "CLUSTER_TEST_CHILD",
	}, name)
}
