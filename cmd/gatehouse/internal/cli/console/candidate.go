package console

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// candidateFile is the file with the documents of the browser.
const candidateFile = "candidate.yaml"

// authenticationKind is the only kind of which documents name files.
const authenticationKind = "AuthenticationConfiguration"

// candidate is a configuration with documents of the browser in place of those with the same kinds and names.
type candidate struct {
	// dir holds all files of the candidate, and is removed at the end.
	dir string
	// all is a directory with the complete configuration, and own one with the part that decides beside a cluster.
	all, own string
}

// newCandidate writes a candidate to directories of its own below the console's. Documents of the browser cannot name files: what
// is read is what the console shows anyway. A candidate for a replay is what webhooks are asked about.
func (c *console) newCandidate(l *loaded, edited string, forReplay bool) (_ *candidate, err error) {
	dir, err := os.MkdirTemp(c.work, "try-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", cli.Cause(err))
	}
	x := &candidate{dir: dir, all: filepath.Join(dir, "all")}
	defer func() {
		if err != nil {
			x.remove()
		}
	}()
	replaced := map[documentKey]bool{}
	for _, d := range splitDocuments("", []byte(edited)) {
		for _, key := range d.keys() {
			replaced[key] = true
		}
	}
	files := map[string][]byte{}
	if c.config != "" {
		var found interface{ Err() error }
		if files, found = config.Files(c.config); found.Err() != nil {
			return nil, found.Err()
		}
	}
	x.own = x.all
	if !c.isOffline() {
		x.own = filepath.Join(dir, "own")
		if err := writeCandidate(x.own, edited, files, replaced); err != nil {
			return nil, err
		}
		shown := l.Config
		if forReplay {
			shown = l.asked()
		}
		text, err := shown.Encode(func(object []byte) []byte { return object }) // it is for this process alone
		if err != nil {
			return nil, err
		}
		files = map[string][]byte{"cluster.yaml": text}
	}
	if err := writeCandidate(x.all, edited, files, replaced); err != nil {
		return nil, err
	}
	return x, x.check()
}

// check returns an error if a document of the browser can name files. It decodes as the commands do: the text of a kind may have escapes.
func (x *candidate) check() error {
	documents, _ := config.Documents(filepath.Join(x.all, candidateFile)) // lint says what is wrong with the others, which no command reads
	if slices.ContainsFunc(documents, func(d config.Document) bool { return namesFiles(d.Value) }) {
		return web.BadRequest("an %s cannot be tried: its documents name files of this machine (hint: gatehouse lint --config DIR)", authenticationKind)
	}
	return nil
}

// namesFiles reports whether a document, or an item of a list in it, is of the kind that names files.
func namesFiles(value any) bool {
	switch of := value.(type) {
	case map[string]any:
		return of["kind"] == authenticationKind || slices.ContainsFunc(slices.Collect(maps.Values(of)), namesFiles)
	case []any:
		return slices.ContainsFunc(of, namesFiles)
	default:
		return false
	}
}

// remove removes all files.
func (x *candidate) remove() { _ = os.RemoveAll(x.dir) } // #nosec G703 -- the console made it, and removes it at the end, too

// writeCandidate writes a directory with the edited documents, and the others below "rest".
func writeCandidate(dir, edited string, files map[string][]byte, replaced map[documentKey]bool) error {
	write := func(name string, text []byte) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("make a temporary directory: %w", cli.Cause(err))
		}
		if err := os.WriteFile(path, text, 0o600); err != nil { // #nosec G703 -- the names are those of files of --config
			return fmt.Errorf("write a temporary file: %w", cli.Cause(err))
		}
		return nil
	}
	if err := write(candidateFile, []byte(edited)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all := splitDocuments(name, files[name])
		kept := slices.DeleteFunc(slices.Clone(all), func(d document) bool { return isLeftOut(&d) || replaced[d.documentKey] })
		text := files[name]
		if len(kept) < len(all) {
			text = joinDocuments(kept)
		}
		if len(kept) == 0 {
			continue
		}
		if err := write("rest/"+name, text); err != nil {
			return err
		}
	}
	return nil
}

// isLeftOut reports whether a document decides nothing about objects. Some of these kinds name files.
func isLeftOut(d *document) bool {
	switch d.Kind {
	case authenticationKind, "AccessToken", "TokenRevocation", "RecordingConfiguration", "Test":
		return true
	default:
		return false
	}
}

// words returns the flags that make a command decide by the candidate.
func (x *candidate) words(c *console) []string {
	words := []string{"--config", x.own}
	if c.isOffline() {
		return words
	}
	return append(words, c.Arguments(c.config == "" || c.WithCluster)...)
}
