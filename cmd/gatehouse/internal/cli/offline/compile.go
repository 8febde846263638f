package offline

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
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// compileFlags are the flags of compile.
type compileFlags struct {
	configFlag
	output, kubernetes, until string
	check, prune              bool
}

// The versions of Kubernetes whose API servers compiled policies are for.
func compileVersions() []string { return []string{"1.35", "1.36", "1.37"} }

// NewCompileCommand returns the command "gatehouse compile".
func NewCompileCommand(s cli.Streams) *cobra.Command {
	var f compileFlags
	cmd := &cobra.Command{
		Use:   "compile --config DIR [-o yaml|json|DIR]",
		Short: "Write policies that the API server enforces itself",
		Long: `Compile translates policies, bindings and exceptions into ValidatingAdmissionPolicies,
which the API server enforces by itself: without a webhook, its certificates and its
outages. A policy becomes one for what it matches, and one for each place where
workloads have the template of their pods.

For each rule and exception, standard error says whether the API server then decides
as Gatehouse does, how it differs, or why the rule stays with Gatehouse. What stays is
not written: keep the webhook for it. What the API server would refuse is never
written.

The API server does not see when an exception ends. The documents have that time as
an annotation, and --check fails once it is past: compile again by then. With --until,
exceptions are left out that end before that time.

With -o DIR, each policy and its bindings are a file of the directory; the same
configuration makes the same files. --check writes nothing, and fails if a file would
change. --prune prints the names of files of an earlier run that are no longer made.

Exit codes: 0 the API server decides as Gatehouse; 1 something differs or stays, or
--check has found a difference; 2 wrong usage, or something cannot be read.`,
		Example: `  # what can the API server enforce by itself?
  gatehouse compile --config config -o yaml > /dev/null

  # write it, and check in CI that it is up to date
  gatehouse compile --config config -o compiled
  gatehouse compile --config config -o compiled --check

  # which rules stay with Gatehouse?
  gatehouse compile --config config -o json | jq '.items[] | select(.status == "stays")'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			options, err := f.options(time.Now())
			if err != nil {
				return err
			}
			return f.run(s, options)
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "yaml", "yaml or json, or a directory to write files to; it is created")
	flags.StringVar(&f.kubernetes, "kubernetes", "1.36", "version of the API server: "+cli.OrList(compileVersions()))
	flags.StringVar(&f.until, "until", "", "time in RFC 3339 up to which the documents will be used: exceptions that end before are left out")
	flags.BoolVar(&f.check, "check", false, "write nothing, and fail if files of -o DIR would change, or an exception in them has ended")
	flags.BoolVar(&f.prune, "prune", false, "print the names of files in -o DIR that an earlier run has made and that are no longer made")
	return cmd
}

// isDirectory reports whether -o is a directory.
func (f *compileFlags) isDirectory() bool { return f.output != "yaml" && f.output != "json" }

// options returns what the flags say.
func (f *compileFlags) options(now time.Time) (compile.Options, error) {
	options := compile.Options{Kubernetes: f.kubernetes, Now: now}
	var err error
	if !slices.Contains(compileVersions(), f.kubernetes) {
		err = errors.Join(err, fmt.Errorf("--kubernetes %q: must be %s", cli.OneLine(f.kubernetes), cli.OrList(compileVersions())))
	}
	if f.until != "" {
		var failed error
		if options.Until, failed = time.Parse(time.RFC3339, f.until); failed != nil {
			err = errors.Join(err, fmt.Errorf("--until %q: must be a time such as 2027-01-31T00:00:00Z", cli.OneLine(f.until)))
		}
	}
	if (f.check || f.prune) && !f.isDirectory() {
		err = errors.Join(err, errors.New("--check and --prune are for -o DIR"))
	}
	if f.output == "" {
		err = errors.Join(err, errors.New("--output: must be yaml, json or a directory"))
	}
	return options, errors.Join(err, cli.CheckDir("--config", f.config))
}

// run compiles the configuration, and writes the result.
func (f *compileFlags) run(s cli.Streams, options compile.Options) error {
	c, _, err := f.load()
	if err != nil {
		return err
	}
	out, err := compile.Compile(c, options)
	if err != nil {
		return fmt.Errorf("%s: cannot be compiled: %w", cli.OneLine(f.config), err)
	}
	if len(out.Items) == 0 {
		return fmt.Errorf("%s: there is no policy (hint: a policy is an AdmissionPolicy or a ValidatingAdmissionPolicy)", cli.OneLine(f.config))
	}
	changed := false
	switch f.output {
	case "json":
		objects := make([]any, len(out.Documents))
		for i := range out.Documents {
			objects[i] = out.Documents[i].Object()
		}
		err = cli.WriteJSON(s.Out, struct {
			Items     []*compile.Item `json:"items"`
			General   []string        `json:"general"`
			Documents []any           `json:"documents"`
		}{out.Items, compile.General(), objects})
	case "yaml":
		err = writeCompiled(s.Out, out.Documents)
	default:
		changed, err = f.directory(s, out)
	}
	if err == nil && f.output != "json" {
		err = writeCompilation(s.Err, out)
	}
	if err == nil && (changed || out.Worst() != compile.Native) {
		return &cli.ExitError{Code: cli.ExitNo}
	}
	return err
}

// writeCompiled writes documents as YAML.
func writeCompiled(to io.Writer, documents []compile.Document) error {
	w := bufio.NewWriter(to)
	for i := range documents {
		if i > 0 {
			_, _ = w.WriteString("---\n") // Flush returns errors, here and below
		}
		text, err := json.Marshal(documents[i].Object())
		if err != nil {
			return fmt.Errorf("%s: %w", documents[i].Object().GetName(), err)
		}
		// The status is the API server's.
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			return fmt.Errorf("%s: %w", documents[i].Object().GetName(), err)
		}
		delete(fields, "status")
		if text, err = cli.EncodeYAML(fields); err != nil {
			return err
		}
		_, _ = w.Write(text)
	}
	return w.Flush()
}

// compiledHead is the first line of a file that compile has written.
const compiledHead = "# compiled by gatehouse compile: change its source\n"

// directory writes a file for each policy with its bindings, and reports whether --check has found a difference.
func (f *compileFlags) directory(s cli.Streams, out *compile.Output) (changed bool, err error) {
	const (
		directoryMode = 0o755
		fileMode      = 0o644
	)
	byName := map[string][]compile.Document{}
	for i := range out.Documents {
		d := out.Documents[i]
		name := d.PolicyName() + ".yaml"
		byName[name] = append(byName[name], d)
	}
	if !f.check {
		if err := os.MkdirAll(f.output, directoryMode); err != nil { // #nosec G301 -- policies are no secrets
			return false, fmt.Errorf("--output: %q cannot be created: %w", f.output, cli.Cause(err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		text := bytes.NewBufferString(compiledHead)
		if err := writeCompiled(text, byName[name]); err != nil {
			return false, err
		}
		path := filepath.Join(f.output, name)
		old, failed := os.ReadFile(path) // #nosec G304 -- the user names the directory
		switch {
		case failed == nil && bytes.Equal(old, text.Bytes()):
			continue
		case f.check:
			changed = true
			_, _ = fmt.Fprintf(s.Err, "%s: would change\n", cli.OneLine(path)) // best effort
			continue
		case failed == nil && !bytes.HasPrefix(old, []byte(compiledHead)):
			return false, fmt.Errorf("%s: exists and was not made by gatehouse compile (hint: name another directory)", cli.OneLine(path))
		}
		if err := os.WriteFile(path, text.Bytes(), fileMode); err != nil { // #nosec G306 -- as above
			return false, fmt.Errorf("%s: cannot be written: %w", cli.OneLine(path), cli.Cause(err))
		}
	}
	gone, err := f.gone(byName)
	for _, path := range gone {
		if f.prune {
			_, _ = fmt.Fprintln(s.Out, cli.OneLine(path)) // best effort, here and below
		} else {
			_, _ = fmt.Fprintf(s.Err, "%s: is no longer made (hint: --prune prints the names)\n", cli.OneLine(path))
		}
	}
	return changed || f.check && len(gone) > 0, err
}

// gone returns the files of an earlier run that are no longer made.
func (f *compileFlags) gone(made map[string][]compile.Document) (paths []string, err error) {
	entries, err := os.ReadDir(f.output)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--output: %q cannot be read: %w", f.output, cli.Cause(err))
	}
	for _, entry := range entries {
		path := filepath.Join(f.output, entry.Name())
		if entry.IsDir() || made[entry.Name()] != nil || filepath.Ext(path) != ".yaml" {
			continue
		}
		text, err := os.ReadFile(path) // #nosec G304 -- the user names the directory
		if err != nil {
			return nil, fmt.Errorf("%s: cannot be read: %w", cli.OneLine(path), cli.Cause(err))
		}
		if bytes.HasPrefix(text, []byte(compiledHead)) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// writeCompilation writes the report for people: what differs or stays, and a summary by policy.
func writeCompilation(to io.Writer, out *compile.Output) error {
	words := map[compile.Status]string{compile.Native: "native", compile.Differs: "native, differs", compile.Stays: "STAYS with Gatehouse"}
	w := bufio.NewWriter(to)
	counts, rows := map[compile.Status]int{}, [][]string{}
	byPolicy := map[string]map[compile.Status]int{}
	var order []string
	for _, item := range out.Items {
		counts[item.Status]++
		of := item.Kind + "/" + item.Name
		if byPolicy[of] == nil {
			byPolicy[of] = map[compile.Status]int{}
			order = append(order, of)
		}
		byPolicy[of][item.Status]++
		if item.Rule != "" {
			of += " " + item.Rule
		}
		_, _ = fmt.Fprintf(w, "%s: %s\n", cli.OneLine(of), words[item.Status]) // Flush returns errors, here and below
		for _, reason := range item.Reasons {
			_, _ = fmt.Fprintf(w, "    %s\n", cli.OneLine(reason))
		}
		for _, note := range item.Notes {
			_, _ = fmt.Fprintf(w, "    note: %s\n", cli.OneLine(note))
		}
	}
	for _, of := range order {
		n := byPolicy[of]
		rows = append(rows, []string{cli.OneLine(of), fmt.Sprint(n[compile.Native]), fmt.Sprint(n[compile.Differs]), fmt.Sprint(n[compile.Stays])})
	}
	_, _ = fmt.Fprintln(w)
	if err := cli.WriteTable(w, []string{"POLICY", "NATIVE", "DIFFERS", "STAYS"}, rows); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "\nEverywhere:")
	for _, difference := range compile.General() {
		_, _ = fmt.Fprintf(w, "  %s\n", difference)
	}
	_, _ = fmt.Fprintf(w, "%d native, %d with differences, %d with Gatehouse alone; %s\n",
		counts[compile.Native], counts[compile.Differs], counts[compile.Stays], diagnostic.Count(len(out.Documents), "document"))
	if !out.Expires.IsZero() {
		_, _ = fmt.Fprintf(w, "The first exception in the documents ends at %s: compile again by then.\n", out.Expires.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}
