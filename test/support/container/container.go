// Package container runs the program of an unpacked image as a strict cluster does: the layers are its root file system, which
// is read-only, its user is one that the image does not know, and it sees no file of this machine but what is mounted.
//
// A test program becomes the container: it runs itself again, in a mount namespace, and [Enter] does the rest there. Without
// root, a user namespace gives the rights for it. What is not confined are processes and the network, which tests need.
package container

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// Options say what runs in a container.
type Options struct {
	// Image is a directory with the unpacked layers. It is not changed.
	Image string
	// Root is a directory that does not exist yet, on the same file system.
	Root string
	// UID is the user; the group is 0, as OpenShift has it.
	UID int
	// Mounts are directories of this machine by where the program finds them. It may read them, and write nothing.
	Mounts map[string]string
	// Args are the program, as a path in the image, and its arguments. Env is its whole environment.
	Args, Env []string
	// Log is the file that everything it prints is appended to.
	Log string
}

// systems are the file systems of the kernel that a program finds in any container.
var systems = []string{"/proc", "/sys"} //nolint:gochecknoglobals // a constant

// variable is the environment variable that has the Options for [Enter].
const variable = "GATEHOUSE_TEST_CONTAINER"

// New returns a container that does not run yet. The test program must call [Enter].
func New(o Options) (*cluster.Process, error) {
	if err := link(o.Image, o.Root); err != nil {
		return nil, err
	}
	// As a container runtime does in a layer of its own, because the root becomes read-only.
	for _, target := range slices.AppendSeq(slices.Clone(systems), maps.Keys(o.Mounts)) {
		if err := os.MkdirAll(filepath.Join(o.Root, target), 0o755); err != nil { //nolint:gosec // another user reads it
			return nil, err
		}
	}
	options, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return cluster.NewProcess(cluster.ProcessOptions{
		Path: "/proc/self/exe", Env: []string{variable + "=" + string(options)}, Log: o.Log, Attributes: attributes(&o), Ready: cluster.Started,
	}), nil
}

// link makes a directory with the files of another, which are not copied: programs are large.
func link(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755) //nolint:gosec // another user reads it
		}
		return os.Link(path, target) // #nosec G122 -- nobody else writes there
	})
}
