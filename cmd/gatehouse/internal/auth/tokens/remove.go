package tokens

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// Delete removes the tokens' documents. A file that holds nothing else is removed;
// of another one the documents are taken out, without touching a byte of the rest.
// A token in a list, in a file of several JSON values or behind a symbolic link is
// not removable.
//
// Files are read when they are changed, and not before: what Source says may be
// old.
func (d Directory) Delete(ctx context.Context, tokens []authn.Token, dryRun bool) []Removal {
	removals := make([]Removal, len(tokens))
	byFile := map[string][]*Removal{}
	var files []string
	for i := range tokens {
		rel, _, _ := strings.Cut(tokens[i].Source, "#")
		file := filepath.Join(d.Dir, filepath.FromSlash(rel))
		removals[i] = Removal{ID: tokens[i].Name, Place: file}
		if byFile[file] == nil {
			files = append(files, file)
		}
		byFile[file] = append(byFile[file], &removals[i])
	}
	for _, file := range files {
		err := d.locked(ctx, func() error {
			e, err := d.open(file, byFile[file])
			if err != nil || e == nil || dryRun {
				return err
			}
			return e.apply()
		})
		for _, r := range byFile[file] {
			if r.Err == nil {
				r.Err = err
			}
		}
	}
	return removals
}

// edit is a change of a file that has been worked out and not made.
type edit struct {
	file string
	// before is the file as it was read.
	before fs.FileInfo
	// after is the text of the file without the documents, nil if the file is to be
	// removed.
	after []byte
}

// open works out how to remove tokens from a file, and puts down which cannot be.
// It is nil if none can.
func (d Directory) open(file string, removals []*Removal) (*edit, error) {
	before, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %w", file, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	if err := d.direct(file); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file) // #nosec G304 -- a file of the operator's directory
	if err != nil {
		return nil, err
	}
	documents, found := config.Documents(file)
	if found.Err() != nil {
		return nil, notRemovable(file, "the file has errors; 'gatehouse lint' says which")
	}
	out := map[string]*Removal{}
	for _, r := range removals {
		at := slices.IndexFunc(documents, func(document config.Document) bool { return tokenID(document.Value) == r.ID })
		switch {
		case at >= 0:
			out[r.ID] = r
		case slices.ContainsFunc(documents, func(document config.Document) bool { return inList(document.Value, r.ID) }):
			r.Err = notRemovable(file, "it is an item of a list")
		default:
			r.Err = fmt.Errorf("it %w: it is not in %s any more", ErrNotFound, file)
		}
	}
	others := slices.ContainsFunc(documents, func(document config.Document) bool { return out[tokenID(document.Value)] == nil })
	switch {
	case len(out) == 0:
		return nil, nil //nolint:nilnil // there is nothing to do, and each removal says why
	case !others:
		return &edit{file: file, before: before}, nil
	case strings.EqualFold(filepath.Ext(file), ".json"):
		return nil, notRemovable(file, "the file holds other JSON values too")
	}
	after, ok := without(text, documents, func(id string) bool { return out[id] != nil })
	if !ok {
		return nil, notRemovable(file, "taking it out would change what else is in the file")
	}
	return &edit{file: file, before: before, after: after}, nil
}

// direct refuses files that are reached through a symbolic link. They are written
// by something else, a kubelet or git-sync, which would bring the token back.
func (d Directory) direct(file string) error {
	dir, err := filepath.EvalSymlinks(d.Dir)
	if err != nil {
		return err
	}
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(d.Dir, file)
	if err != nil {
		return err
	}
	if filepath.Join(dir, rel) != path {
		return notRemovable(file, "it is reached through a symbolic link, and whatever keeps that up to date would bring the token back")
	}
	return nil
}

// notRemovable returns an ErrNotRemovable with a reason.
func notRemovable(file, why string) error {
	return fmt.Errorf("it %w from %s: %s (hint: edit or remove it there)", ErrNotRemovable, file, why)
}

// apply makes the change, if the file is still what was read.
func (e *edit) apply() error {
	if e.after == nil {
		if err := e.unchanged(); err != nil {
			return err
		}
		return os.Remove(e.file)
	}
	// Its name begins with a dot, so that no server reads it.
	temporary, err := os.CreateTemp(filepath.Dir(e.file), ".gatehouse-revoke-*"+filepath.Ext(e.file))
	if err != nil {
		return err
	}
	_, err = temporary.Write(e.after)
	if err == nil {
		err = temporary.Chmod(e.before.Mode().Perm())
	}
	if err == nil {
		err = keepOwner(temporary, e.before)
	}
	if err == nil {
		err = temporary.Sync()
	}
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = e.unchanged()
	}
	if err == nil {
		err = os.Rename(temporary.Name(), e.file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}

// unchanged fails if the file is not what was read.
func (e *edit) unchanged() error {
	now, err := os.Lstat(e.file)
	if err != nil || !os.SameFile(now, e.before) || now.Size() != e.before.Size() || !now.ModTime().Equal(e.before.ModTime()) {
		return fmt.Errorf("%s %w (hint: try again)", e.file, ErrChanged)
	}
	return nil
}

// without returns the text of a YAML file without the tokens of some ids. False means
// that it cannot be had without changing what the rest says.
func without(text []byte, documents []config.Document, drop func(id string) bool) ([]byte, bool) {
	values, ok := valuesOf(text)
	if !ok || len(values) != len(documents) {
		return nil, false
	}
	want := make([]any, 0, len(values))
	for i, value := range values {
		if id := tokenID(documents[i].Value); id == "" || !drop(id) {
			want = append(want, value)
		}
	}
	var rest []byte
	end := 0
	for _, p := range parts(text) {
		if id := p.tokenID(text); id != "" && drop(id) {
			rest = append(rest, text[end:p.start]...)
			end = p.end
		}
	}
	rest = append(rest, text[end:]...)
	got, ok := valuesOf(rest)
	return rest, ok && reflect.DeepEqual(got, want)
}

// tokenID returns the id of the token that a document is, and empty if it is none.
func tokenID(value any) string {
	object, _ := value.(map[string]any)
	if object["kind"] != kind || object["apiVersion"] != v1alpha1.GroupVersion.String() {
		return ""
	}
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

// inList reports whether a document is a list that the token may be in. Items of a
// typed list need not say what they are.
func inList(value any, id string) bool {
	object, _ := value.(map[string]any)
	items, _ := object["items"].([]any)
	return slices.ContainsFunc(items, func(item any) bool {
		fields, _ := item.(map[string]any)
		metadata, _ := fields["metadata"].(map[string]any)
		return metadata["name"] == id || inList(item, id)
	})
}
