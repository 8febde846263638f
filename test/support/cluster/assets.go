package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// The environment variables that [Assets] looks at, first to last.
const (
	// AssetsVariable names a directory with the programs of a control plane.
	AssetsVariable = "GATEHOUSE_CONTROLPLANE"
	// EnvtestVariable is the same, as controller-runtime's envtest calls it.
	EnvtestVariable = "KUBEBUILDER_ASSETS"
	// VersionVariable chooses among the versions that are built under bin/controlplane, like the build itself.
	VersionVariable = "KUBERNETES_VERSION"
)

const (
	etcdProgram              = "etcd"
	apiServerProgram         = "kube-apiserver"
	controllerManagerProgram = "kube-controller-manager"
	kubectlProgram           = "kubectl"
)

// Assets returns the directory that holds etcd, kube-apiserver and kubectl: what GATEHOUSE_CONTROLPLANE or
// KUBEBUILDER_ASSETS says, else bin/controlplane/VERSION below the repository's root, where 'make controlplane'
// builds them. VERSION is KUBERNETES_VERSION or what the file test/controlplane/VERSION says.
//
// A directory that lacks one of the three is an error: a test that needs the control plane must fail, not skip,
// because a skipped test looks like a passed one.
func Assets() (string, error) {
	for _, variable := range []string{AssetsVariable, EnvtestVariable} {
		directory := os.Getenv(variable)
		if directory == "" {
			continue
		}
		hint := fmt.Sprintf("%s names this directory: correct it, or unset it and run 'make controlplane'", variable)
		return absolute(directory, hint)
	}

	root, err := support.Root()
	if err != nil {
		return "", fmt.Errorf("%w, or set %s to a directory with %s, %s and %s", err, AssetsVariable, etcdProgram, apiServerProgram, kubectlProgram)
	}
	version := os.Getenv(VersionVariable)
	hint := fmt.Sprintf("run 'make controlplane %s=%s'", VersionVariable, version)
	if version == "" {
		content, err := os.ReadFile(filepath.Join(root, "test", "controlplane", "VERSION")) //nolint:gosec // a path of our own making
		if err != nil {
			return "", fmt.Errorf("read the control plane's default version: %w", err)
		}
		version, hint = string(content), "run 'make controlplane'"
	}
	version = strings.TrimPrefix(strings.TrimSpace(version), "v")
	return absolute(filepath.Join(root, "bin", "controlplane", version), hint)
}

func absolute(directory, hint string) (string, error) {
	directory, err := filepath.Abs(directory)
	if err != nil {
		return "", fmt.Errorf("find the control plane: %w", err)
	}
	for _, name := range []string{etcdProgram, apiServerProgram, kubectlProgram} {
		err := checkProgram(directory, name, hint)
		if err != nil {
			return "", err
		}
	}
	return directory, nil
}

func checkProgram(directory, name, hint string) error {
	info, err := os.Stat(filepath.Join(directory, name)) //nolint:gosec // whoever runs the tests chooses their programs
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no control plane in %s: %s is missing; hint: %s", directory, name, hint)
	case err != nil:
		return fmt.Errorf("find the control plane: %w; hint: %s", err, hint)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s in %s is not an executable file; hint: %s", name, directory, hint)
	}
	return nil
}
