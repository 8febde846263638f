package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// writeChart has helm package the chart. Helm takes the time of what it writes from the files.
func (r *release) writeChart() error {
	work, err := os.MkdirTemp("", "packer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	chart := filepath.Join(work, name)
	if err := os.CopyFS(chart, os.DirFS(filepath.Join("manifests", "chart", name))); err != nil {
		return err
	}
	err = filepath.WalkDir(chart, func(found string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(found, r.time, r.time))
	})
	if err != nil {
		return err
	}
	if _, err := r.runHelm("package", chart, "--version", r.number, "--app-version", r.number, "--destination", r.output); err != nil {
		return err
	}
	return os.Chtimes(r.chart(), r.time, r.time)
}

// chart is the path of the packaged chart.
func (r *release) chart() string {
	return filepath.Join(r.output, fmt.Sprintf("%s-%s.tgz", name, r.number))
}

// writeInstalls writes what the chart renders, for kubectl apply and as a base for kustomize.
func (r *release) writeInstalls() error {
	for file, values := range map[string]string{
		"install.yaml": "namespace.create=true", "install-cert-manager.yaml": "namespace.create=true,certificates.source=certManager",
	} {
		rendered, err := r.runHelm("template", name, r.chart(), "--namespace", name+"-system", "--set", values)
		if err != nil {
			return err
		}
		if err := r.write(file, rendered); err != nil {
			return err
		}
	}
	return nil
}

// runHelm returns what helm prints, without the user's configuration.
func (r *release) runHelm(args ...string) ([]byte, error) {
	home, err := os.MkdirTemp("", "packer")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	var stderr bytes.Buffer
	command := exec.Command(r.helm, args...)
	command.Env, command.Stderr = []string{"HOME=" + home, "TZ=UTC"}, &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("helm %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return output, nil
}
