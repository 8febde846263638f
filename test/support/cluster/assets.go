package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// versionVariable chooses among the versions that are built below bin/controlplane.
const versionVariable = "KUBERNETES_VERSION"

// Assets returns the directory with the programs of the control plane, bin/controlplane/VERSION, where 'make controlplane'
// builds them. VERSION is KUBERNETES_VERSION or what the file test/controlplane/VERSION says. A missing program is an error:
// a test that needs the control plane must fail, not skip, because a skipped test looks like a passed one.
func Assets() (string, error) {
	root, err := support.Root()
	if err != nil {
		return "", err
	}
	version, target := os.Getenv(versionVariable), "controlplane"
	if version == "" {
		content, err := os.ReadFile(filepath.Join(root, "test", "controlplane", "VERSION")) //nolint:gosec // a path of our own making
		if err != nil {
			return "", fmt.Errorf("read the control plane's default version: %w", err)
		}
		version = string(content)
	} else {
		target += " " + versionVariable + "=" + version
	}
	version = strings.TrimPrefix(strings.TrimSpace(version), "v")
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl"} {
		_, err := support.Built(target, "controlplane", version, program)
		if err != nil {
			return "", err
		}
	}
	return filepath.Join(root, "bin", "controlplane", version), nil
}
