package tokens

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// kind is that of access tokens.
const kind = "AccessToken"

// Delete removes the files that contain the tokens and nothing else. A token in a file
// with other documents, in a list, or behind a symbolic link is not removable.
//
// Files are read when they are removed, and not before: what Source says may be
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
		err := ctx.Err()
		if err == nil {
			err = d.removeFile(file, byFile[file], dryRun)
		}
		for _, r := range byFile[file] {
			if r.Err == nil {
				r.Err = err
			}
		}
	}
	return removals
}

// removeFile removes a file if it has no other documents than the tokens. It sets the
// errors of tokens that are not in it.
func (d Directory) removeFile(file string, removals []*Removal, dryRun bool) error {
	before, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s %w", file, ErrNotFound)
	}
	if err != nil {
		return err
	}
	if err := d.checkDirect(file); err != nil {
		return err
	}
	documents, found := config.Documents(file)
	if found.Err() != nil {
		return notRemovable(file, "the file has errors; 'gatehouse lint' says which")
	}
	remove := map[string]bool{}
	for _, r := range removals {
		switch {
		case slices.ContainsFunc(documents, func(document config.Document) bool { return tokenID(document.Value) == r.ID }):
			remove[r.ID] = true
		case slices.ContainsFunc(documents, func(document config.Document) bool { return inList(document.Value, r.ID) }):
			r.Err = notRemovable(file, "it is an item of a list")
		default:
			r.Err = fmt.Errorf("it %w: it is not in %s any more", ErrNotFound, file)
		}
	}
	switch {
	case len(remove) == 0:
		return nil // each removal has its error
	case slices.ContainsFunc(documents, func(document config.Document) bool { return !remove[tokenID(document.Value)] }):
		return notRemovable(file, "the file has other documents too")
	case dryRun:
		return nil
	}
	now, err := os.Lstat(file)
	if err != nil || !os.SameFile(now, before) || now.Size() != before.Size() || !now.ModTime().Equal(before.ModTime()) {
		return fmt.Errorf("%s %w (hint: try again)", file, ErrChanged)
	}
	return os.Remove(file)
}

// checkDirect rejects files that are reached through a symbolic link. They are written
// by something else, a kubelet or git-sync, which would bring the token back.
func (d Directory) checkDirect(file string) error {
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
