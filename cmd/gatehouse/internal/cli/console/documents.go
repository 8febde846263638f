package console

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// document is a document of a configuration, or an item of a list. One that cannot be read has a text alone.
type document struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Items    []document

	text []byte
}

func (d *document) key() objectKey { return objectKey{d.Kind, d.Metadata.Namespace, d.Metadata.Name} }

// keys returns what identifies the object, or the items of a list.
func (d *document) keys() (all []objectKey) {
	if !strings.HasSuffix(d.Kind, "List") {
		return []objectKey{d.key()}
	}
	for i := range d.Items {
		all = append(all, d.Items[i].key())
	}
	return all
}

// splitDocuments returns the documents of a file that are not empty.
func splitDocuments(text []byte) (all []document) {
	reader, aliases := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))), manifest.NewExpansion(len(text))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			return append(all, document{text: text})
		}
		var raw []byte
		if err = aliases.Take(part); err == nil {
			raw, err = yaml.YAMLToJSON(part)
		}
		if err == nil && string(raw) == "null" {
			continue
		}
		var d document
		if err != nil || json.Unmarshal(raw, &d) != nil {
			d = document{}
		}
		d.text = part
		all = append(all, d)
	}
}

// joinDocuments returns documents as one file.
func joinDocuments(all []document) []byte {
	var out bytes.Buffer
	for i := range all {
		out.WriteString("---\n")
		out.Write(endLine(bytes.TrimPrefix(all[i].text, []byte("---\n"))))
	}
	return out.Bytes()
}

// documentText returns a policy, profile or exception as its file has it, or as YAML if it is one of the cluster.
func (c *console) documentText(l *loaded, of objectKey) (string, error) {
	if l == nil {
		return "", errNoConfiguration()
	}
	all := slices.Concat(l.policies, l.exceptions)
	at := slices.IndexFunc(all, func(o *object) bool { return o.key() == of })
	if at < 0 {
		return "", web.NotFound("there is no %s %q", cli.InertName(of.Kind), cli.InertName(of.Name))
	}
	var text []byte
	isWanted := func(d document) bool { return d.key() == of }
	if source, number := parseSource(all[at].source); !isFromCluster(source) {
		file, err := os.ReadFile(filepath.Join(c.config, filepath.FromSlash(source))) // #nosec G304 -- a file of the configuration
		if found := splitDocuments(file); err == nil && number <= len(found) && isWanted(found[number-1]) {
			text = found[number-1].text
		}
	}
	if text == nil { // an item of a list, or an object of the cluster
		encoded, err := l.Config.Encode(func([]byte) []byte { return []byte("{}") })
		if err != nil {
			return "", err
		}
		if found := splitDocuments(encoded); slices.ContainsFunc(found, isWanted) {
			text = found[slices.IndexFunc(found, isWanted)].text
		}
	}
	return string(bytes.TrimPrefix(text, []byte("---\n"))), nil
}

// candidateFile is the file with the documents of the browser.
const candidateFile = "candidate.yaml"

// authenticationKind is the only kind of which documents name files.
const authenticationKind = "AuthenticationConfiguration"

// candidate is a configuration with documents of the browser in place of those with the same kinds and names.
type candidate struct {
	// dir has the documents. It is in root, which is removed at the end.
	root, dir string
}

// newCandidate writes a candidate. Documents of the browser cannot name files: what is read is what the console shows anyway.
// A candidate for a replay is what webhooks are asked about.
func (c *console) newCandidate(l *loaded, edited string, forReplay bool) (_ *candidate, err error) {
	root, err := os.MkdirTemp(c.work, "try-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", cli.Cause(err))
	}
	x := &candidate{root, filepath.Join(root, "candidate")}
	defer func() {
		if err != nil {
			x.remove()
		}
	}()
	files := map[string][]byte{}
	switch {
	case !c.isOffline():
		shown := l.Config
		if forReplay {
			shown = l.asked()
		}
		text, err := shown.Encode(func(object []byte) []byte { return object }) // it is for this process alone
		if err != nil {
			return nil, err
		}
		files["cluster.yaml"] = text
	case c.config != "":
		read, found := config.Files(c.config)
		if found.Err() != nil {
			return nil, found.Err()
		}
		files = read
	}
	replaced := map[objectKey]bool{}
	for _, d := range splitDocuments([]byte(edited)) {
		for _, key := range d.keys() {
			replaced[key] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all := splitDocuments(files[name])
		kept := slices.DeleteFunc(slices.Clone(all), func(d document) bool { return isLeftOut(d.Kind) || replaced[d.key()] })
		text := files[name]
		if len(kept) < len(all) {
			text = joinDocuments(kept)
		}
		if len(kept) > 0 {
			err = errors.Join(err, x.write("rest/"+name, text))
		}
	}
	if err = errors.Join(err, x.write(candidateFile, []byte(edited))); err != nil {
		return nil, err
	}
	// It decodes as the commands do: the text of a kind may have escapes.
	documents, _ := config.Documents(filepath.Join(x.dir, candidateFile)) // lint says what is wrong with the others, which no command reads
	if slices.ContainsFunc(documents, func(d config.Document) bool { return namesFiles(d.Value) }) {
		return nil, web.BadRequest("an %s cannot be tried: its documents name files of this machine (hint: gatehouse lint --config DIR)", authenticationKind)
	}
	return x, nil
}

// write writes a file.
func (x *candidate) write(name string, text []byte) error {
	path := filepath.Join(x.dir, filepath.FromSlash(name))
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, text, 0o600) // #nosec G703 -- the names are those of files of --config
	}
	if err != nil {
		return fmt.Errorf("write a temporary file: %w", cli.Cause(err))
	}
	return nil
}

// remove removes all files.
func (x *candidate) remove() { _ = os.RemoveAll(x.root) } // #nosec G703 -- the console made it, and removes it at the end, too

// cleanText removes the temporary directory from a message.
func (x *candidate) cleanText(text string) string {
	dir := filepath.ToSlash(x.dir)
	return strings.NewReplacer(dir+"/rest/", "", dir+"/"+candidateFile, "the documents", dir, "the candidate").Replace(text)
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

// isLeftOut reports whether a document decides nothing about objects. Some of these kinds name files.
func isLeftOut(kind string) bool {
	return slices.Contains([]string{authenticationKind, "AccessToken", "TokenRevocation", "Grant", "RecordingConfiguration", "Test"}, kind)
}
