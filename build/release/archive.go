package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"path"
	"testing/fstest"
)

// file is a regular file in an archive or a layer.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// tar returns the files and the directories above them, owned by root.
func (r *release) tar(files []file) ([]byte, error) {
	tree := fstest.MapFS{}
	for _, f := range files {
		tree[f.name] = &fstest.MapFile{Data: f.content, Mode: f.mode, ModTime: r.time}
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			tree[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: r.time}
		}
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.AddFS(tree), w.Close()); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

// archive returns the files as .tar.gz.
func (r *release) archive(files []file) ([]byte, error) {
	content, err := r.tar(files)
	if err != nil {
		return nil, err
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compressed.Bytes(), nil
}
