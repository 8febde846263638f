package offline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
)

// compileFlags are the flags of compile.
type compileFlags struct {
	configFlag
	output, kubernetes, until string
	static, check, prune      bool
	excluded                  []string
}

// defaultCompileVersion is the version of the API server for which policies are compiled if nobody says another.
const defaultCompileVersion = "1.36"

// compileVersions are the versions of Kubernetes whose API servers compiled policies are for.
func compileVersions() []string { return []string{"1.35", defaultCompileVersion, "1.37"} }

// NewCompileCommand returns the command "gatehouse compile".
func NewCompileCommand(s cli.Streams) *cobra.Command {
	var f compileFlags
	cmd := &cobra.Command{
		Use:   "compile --config DIR [-o yaml|json|DIR]",
		Short: "Write policies that the API server enforces itself",
		Long: `Compile translates the documents of Gatehouse into Kubernetes' own policies, which
the API server enforces by itself: without a webhook, its certificates and its
outages. A policy becomes one for what it matches, and one for each place where
workloads have the template of their pods.

Standard error says how many rules the API server decides as Gatehouse does, which of
them it decides otherwise and in what, and which stay with Gatehouse, and why. What
stays is not written: keep the webhook for it. Compile writes nothing that the API
server would refuse.

With -o DIR, each document becomes a file; the same configuration makes the same
bytes. The API server does not see when an exception ends, so the files have that
time as an annotation. With --check, compile writes nothing and fails if a file would
change, as it does when an exception in it has ended. With --until, exceptions that
end before that time are left out already.

With --prune, standard output names the objects that an earlier run wrote into files
of -o DIR and this one does not, as kubectl delete takes them.

With --static, the policies are for staticManifestsDir of kube-apiserver, which nobody
can change with kubectl: DIR gets the directories validating-policies and
mutating-policies. Kubernetes reads them from 1.37 on, and 1.36 if the feature gate
ManifestBasedAdmissionControlConfig is on.

Exit codes: 0 the API server decides as Gatehouse, or the files are as --check wants
them; 1 something differs or stays, or a file would change; 2 wrong usage, or
something cannot be read or written.`,
		Example: `  # what can the API server enforce by itself?
  gatehouse compile --config config -o yaml > /dev/null

  # write it, and let CI check that it is up to date, and will be in a week
  gatehouse compile --config config -o compiled
  gatehouse compile --config config -o compiled --check
  gatehouse compile --config config -o compiled --check --until "$(date -u -d '7 days' +%FT%TZ)"

  # apply it, and delete what is no longer made
  gatehouse compile --config config -o compiled --prune > gone.txt
  kubectl apply -f compiled && xargs -r kubectl delete < gone.txt

  # files of kube-apiserver
  gatehouse compile --config config -o static --static --kubernetes 1.37
  gatehouse lint --profile static static/validating-policies

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
	flags.StringVarP(&f.output, "output", "o", "yaml", "output format: yaml or json, or a directory to write files to; it is created")
	flags.StringVar(&f.kubernetes, "kubernetes", defaultCompileVersion, "version of the API server: "+cli.OrList(compileVersions()))
	flags.StringVar(&f.until, "until", "", "time in RFC 3339 up to which the documents will be used: exceptions that end before are left out")
	flags.StringSliceVar(&f.excluded, "exclude-namespace", install.ExcludedNamespaces(), "namespaces in which AdmissionPolicies are not in force, because the API server sends nothing about them to Gatehouse; repeatable")
	flags.BoolVar(&f.static, "static", false, "write policies that kube-apiserver reads from files of its hosts (staticManifestsDir), into directories below -o DIR")
	flags.BoolVar(&f.check, "check", false, "write nothing, and fail if files of -o DIR would change, or an exception in them has ended")
	flags.BoolVar(&f.prune, "prune", false, "print the objects (with --static, the files) that an earlier run wrote into -o DIR and this one does not")
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"yaml", "json"}, cobra.ShellCompDirectiveDefault // files, too
	})
	_ = cmd.RegisterFlagCompletionFunc("kubernetes", cobra.FixedCompletions(compileVersions(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists, here and above
	return cmd
}

// isDirectory reports whether -o is a directory.
func (f *compileFlags) isDirectory() bool { return f.output != "yaml" && f.output != "json" }

// options returns what the flags say.
func (f *compileFlags) options(now time.Time) (compile.Options, error) {
	options := compile.Options{Kubernetes: f.kubernetes, Now: now, ExcludeNamespaces: slices.Sorted(slices.Values(f.excluded))}
	var problems cli.Problems
	problems.Add(!slices.Contains(compileVersions(), f.kubernetes), "--kubernetes %q: must be %s", cli.OneLine(f.kubernetes), cli.OrList(compileVersions()))
	if f.until != "" {
		var err error
		options.Until, err = time.Parse(time.RFC3339, f.until)
		problems.Add(err != nil, "--until %q: must be a time such as 2027-01-31T00:00:00Z", cli.OneLine(f.until))
		problems.Add(err == nil && !now.Before(options.Until), "--until %s: is past (hint: it is the time up to which you will use the documents; exceptions that have ended are left out anyway)", f.until)
	}
	problems.Add((f.check || f.prune || f.static) && !f.isDirectory(), "--check, --prune and --static are for a directory (hint: -o DIR)")
	problems.Add(f.static && f.kubernetes == "1.35", "--static: Kubernetes 1.35 reads no policies from files (hint: --kubernetes 1.37)")
	for _, name := range f.excluded {
		problems.Add(len(validation.IsDNS1123Label(name)) > 0, "--exclude-namespace %q: must be the name of a namespace: lower-case letters, digits and dashes", cli.OneLine(name))
	}
	problems = append(problems, cli.CheckDir("--config", f.config))
	if f.isDirectory() {
		problems.Add(slices.Contains([]string{"", "table", "text", "wide", "name", "yml", "dir"}, f.output),
			"--output %q: must be yaml, json or a directory (hint: ./%s is a directory of this name)", f.output, f.output)
		problems.Add(slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(f.output)), "--output %q: must be a directory (hint: -o yaml > FILE)", f.output)
		problems.Add(patherr.IsBelow(f.output, f.config), "--output %q: must not be in the directory of --config, whose files are documents (hint: use another directory)", f.output)
	}
	return options, problems.Err()
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
	if len(out.Items) == 0 && !f.prune {
		return fmt.Errorf("--config %s: nothing to compile (hint: it takes policies, and SidecarProfiles)", cli.OneLine(f.config))
	}
	if f.static {
		out.Static()
	}
	report := newCompileReport(out)
	report.Kubernetes = f.kubernetes
	switch f.output {
	case "json":
		report.Documents = []any{} // and not null
		for i := range out.Documents {
			fields, failed := compiledFields(&out.Documents[i])
			if failed != nil {
				return failed
			}
			report.Documents = append(report.Documents, fields)
		}
		err = cli.WriteJSON(s.Out, report)
	case "yaml":
		var text []byte
		if text, err = compiledText(out.Documents); err == nil {
			_, err = s.Out.Write(text)
		}
	default:
		if err = f.directory(s, out, options.Now); f.check {
			return err
		}
	}
	if err == nil && f.output != "json" {
		err = cli.WriteReport(s.Err, "", report, func(w io.Writer) { report.write(w, f) })
	}
	if err == nil && out.Worst() != compile.Native {
		return &cli.ExitError{Code: cli.ExitNo}
	}
	return err
}

// compiledFields returns a document as it is written: without the status, which is the API server's.
func compiledFields(d *compile.Document) (map[string]any, error) {
	text, err := json.Marshal(d.Object())
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Object().GetName(), err)
	}
	delete(fields, "status")
	return fields, nil
}

// compiledText returns documents as YAML.
func compiledText(documents []compile.Document) ([]byte, error) {
	var all []byte
	for i := range documents {
		fields, err := compiledFields(&documents[i])
		if err != nil {
			return nil, err
		}
		text, err := cli.EncodeYAML(fields)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			all = append(all, compiledSeparator...)
		}
		all = append(all, text...)
	}
	return all, nil
}

// compileReport is the report as JSON.
type compileReport struct {
	Kubernetes string `json:"kubernetes"`
	// Summary counts rules by policies and profiles, and exceptions by themselves.
	Summary []*compileCount `json:"summary"`
	// Items are the rules, profiles and exceptions.
	Items []*compile.Item `json:"items"`
	// General are differences of all compiled policies, and then of all compiled profiles if there are any.
	General []string `json:"general"`
	// Expires is when the first exception in the documents ends, nil for never.
	Expires   *time.Time `json:"expires,omitempty"`
	Documents []any      `json:"documents"`
}

// compileCount is how many rules of a document are what.
type compileCount struct {
	Kind    string `json:"kind,omitempty"`
	Name    string `json:"name"`
	Native  int    `json:"native"`
	Differs int    `json:"differs"`
	Stays   int    `json:"stays"`
}

func (c *compileCount) add(o *compileCount) {
	c.Native, c.Differs, c.Stays = c.Native+o.Native, c.Differs+o.Differs, c.Stays+o.Stays
}

func (c *compileCount) row() []string {
	name := c.Name
	if c.Kind != "" {
		name = c.Kind + "/" + name
	}
	return []string{cli.OneLine(name), fmt.Sprint(c.Native), fmt.Sprint(c.Differs), fmt.Sprint(c.Stays)}
}

// newCompileReport returns the report without the documents.
func newCompileReport(out *compile.Output) *compileReport {
	r := &compileReport{Items: out.Items, General: out.General()}
	by := map[[2]string]*compileCount{}
	for _, item := range out.Items {
		key := [2]string{item.Kind, item.Name}
		if by[key] == nil {
			by[key] = &compileCount{Kind: item.Kind, Name: item.Name}
			r.Summary = append(r.Summary, by[key])
		}
		switch item.Status {
		case compile.Native:
			by[key].Native++
		case compile.Differs:
			by[key].Differs++
		case compile.Stays:
			by[key].Stays++
		}
	}
	if !out.Expires.IsZero() {
		r.Expires = new(out.Expires.UTC())
	}
	if slices.ContainsFunc(out.Items, func(i *compile.Item) bool { return i.Kind == compile.ProfileKind && i.Status != compile.Stays }) {
		r.General = append(r.General, compile.GeneralOfProfiles()...)
	}
	return r
}

// write writes the report for people: the policies with rules that differ or stay, each reason once, and what to do next. Flush of w has the error.
func (r *compileReport) write(w io.Writer, f *compileFlags) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	var rows [][]string
	var native, all compileCount
	for _, one := range r.Summary {
		if all.add(one); one.Differs+one.Stays > 0 {
			rows = append(rows, one.row())
		} else {
			native.add(one)
			native.Name = "others"
		}
	}
	if all.Name = "all"; native.Name != "" && len(rows) > 0 {
		rows = append(rows, native.row())
	}
	_ = cli.WriteTable(w, []string{"SOURCE", "NATIVE", "DIFFERS", "STAYS"}, append(rows, all.row()))
	r.section(line, "Stays with Gatehouse:", func(i *compile.Item) []string { return reasonsOf(i, compile.Stays) })
	r.section(line, "The API server decides otherwise:", func(i *compile.Item) []string { return reasonsOf(i, compile.Differs) })
	r.section(line, "Notes:", func(i *compile.Item) []string {
		if i.Status == compile.Stays {
			return nil
		}
		return i.Notes
	})
	if len(r.General) > 0 {
		line("\nBesides, %d differences hold for all that is compiled: -o json lists them in .general.", len(r.General))
	}
	if r.Expires != nil {
		line("\nThe first exception in the documents ends at %s: compile again by then.", r.Expires.Format(time.RFC3339))
	}
	if f.static && f.kubernetes == "1.36" {
		line("\nKubernetes %s reads these files only with --feature-gates=ManifestBasedAdmissionControlConfig=true.", f.kubernetes)
	}
}

// reasonsOf returns the reasons of an item of a status.
func reasonsOf(i *compile.Item, status compile.Status) []string {
	if i.Status != status {
		return nil
	}
	return i.Reasons
}

// section writes each text with the items that have it, the rules of a policy on one line.
func (r *compileReport) section(line func(string, ...any), title string, texts func(*compile.Item) []string) {
	var order []string
	items := map[string][]*compile.Item{}
	for _, item := range r.Items {
		for _, text := range texts(item) {
			if items[text] == nil {
				order = append(order, text)
			}
			items[text] = append(items[text], item)
		}
	}
	for n, text := range order {
		if n == 0 {
			line("\n%s", title)
		}
		line("  %s", cli.OneLine(text))
		var of bytes.Buffer
		for i, item := range items[text] {
			switch before := items[text][max(i-1, 0)]; {
			case i > 0 && before.Kind == item.Kind && before.Name == item.Name:
				of.WriteString(", " + item.Rule)
				continue
			case i > 0:
				line("      %s", cli.OneLine(of.String()))
			}
			of.Reset()
			of.WriteString(item.Kind + "/" + item.Name)
			if item.Rule != "" {
				of.WriteString(" " + item.Rule)
			}
		}
		line("      %s", cli.OneLine(of.String()))
	}
}
