// Package installers finds helm, kustomize and krew for tests: with these, and with kubectl, people install Gatehouse.
package installers

import "github.com/gatehouse-dev/gatehouse/test/support"

// The programs.
const (
	Helm      = "helm"
	Kustomize = "kustomize"
	Krew      = "krew"
)

// Binary returns the path of a program.
func Binary(program string) (string, error) {
	return support.Built("installers", "installers", program)
}
