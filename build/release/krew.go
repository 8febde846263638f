package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// krew is a plugin manifest of krew, up to its platforms.
const krew = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: %[1]s
spec:
  version: %[2]s
  homepage: %[3]s
  shortDescription: Test, explain and audit admission policies
  description: |
    Gatehouse injects sidecars, enforces admission policies and authenticates
    tokens for the Kubernetes API server. This command checks manifests against
    its policies before they are applied, explains each decision, tests and
    lints policies, audits what exists in a cluster, replays recorded reviews,
    issues access tokens, logs in, and shows the state of certificates.
    Without a server in the cluster, it works with a directory of policies.
  platforms:
`

// writeKrew writes the manifest of the kubectl plugin.
func (r *release) writeKrew() error {
	var manifest strings.Builder
	fmt.Fprintf(&manifest, krew, name, r.version, homepage)
	for i := range r.platforms {
		p := &r.platforms[i]
		file := p.file(r, ".tar.gz")
		archive, err := os.ReadFile(filepath.Join(r.output, file))
		if err != nil {
			return err
		}
		fmt.Fprintf(&manifest, `  - selector:
      matchLabels:
        os: %s
        arch: %s
    uri: %s/releases/download/%s/%s
    sha256: %x
    bin: %s
`, p.os, p.arch, homepage, r.version, file, sha256.Sum256(archive), p.program())
	}
	return r.write(name+".yaml", []byte(manifest.String()))
}
