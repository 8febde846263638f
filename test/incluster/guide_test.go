package incluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// What the documents for platform teams show is what happens: every command of their console blocks is run on a real API
// server, in the order of the sections that are named here, and prints what stands below it. YAML blocks that begin with
// the name of a file are that file.
//
// UPDATE_GOLDEN=1 writes what is printed into the documents.
func TestGuides(t *testing.T) {
	t.Parallel()
	const installation, resources = "installation.md", "custom-resources.md"
	with := map[string][]string{}
	for name, test := range map[string]struct {
		document string
		sections []string
		// installed reports whether Gatehouse is there before.
		installed bool
	}{
		"kubectl":   {installation, []string{"With kubectl", "Verify", "Configuration", "Upgrading", "Removing with kubectl"}, false},
		"helm":      {installation, []string{"With Helm", "Removing with Helm"}, false},
		"outage":    {installation, []string{"What nobody can lock"}, true},
		"resources": {resources, nil, true},
	} {
		with[test.document] = append(with[test.document], test.sections...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuide(t, test.document)
			if test.installed {
				g.site.install(t)
			}
			if name == "outage" { // which needs a policy that fails closed
				must(t, g.site.apply(t.Context(), podPolicy))
				err := g.site.kubectl(t.Context(), "", "wait", "--for=condition=Degraded=False", "--timeout", deadline.String(), "admissionpolicy/pods")
				must(t, err)
			}
			for i, part := range g.parts {
				if len(test.sections) == 0 || slices.Contains(test.sections, part.section) {
					g.runPart(t, &g.parts[i])
				}
			}
			g.writeBack(t)
		})
	}
	t.Run("every command is run", func(t *testing.T) {
		for _, document := range []string{installation, resources} {
			sections := with[document]
			for _, part := range readGuide(t, document) {
				if len(part.commands) > 0 && len(sections) > 0 && !slices.Contains(sections, part.section) {
					t.Errorf("%s: nobody runs the commands below %q", document, part.section)
				}
			}
			for _, section := range sections {
				if !slices.ContainsFunc(readGuide(t, document), func(p guidePart) bool { return p.section == section }) {
					t.Errorf("%s: there is nothing to do below %q", document, section)
				}
			}
		}
	})
}

// podPolicy is a policy about pods, which allows all.
const podPolicy = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: pods}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "true"}]
  validationActions: [Deny]
`

// guidePart is a block of a document: a file, or commands with what they print.
type guidePart struct {
	section string
	// text is the block as it is in the document, between its fences.
	text     string
	file     string
	commands []guideCommand
}

type guideCommand struct{ line, output string }

// guide is a document that is tried out.
type guide struct {
	site           *site
	path           string
	parts          []guidePart
	dir            string
	environment    []string
	update, differ bool
}

func guidePath(document string) string { return filepath.Join("..", "..", "docs", document) }

// readGuide reads the blocks of a document that are to be tried out.
func readGuide(t *testing.T, document string) []guidePart {
	t.Helper()
	text, err := os.ReadFile(guidePath(document))
	must(t, err)
	var (
		parts   []guidePart
		section string
	)
	named := regexp.MustCompile(`^# ([\w./-]+\.ya?ml)\n`)
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		if title, ok := strings.CutPrefix(strings.TrimLeft(lines[i], "#"), " "); ok && strings.HasPrefix(lines[i], "##") {
			section = title
		}
		kind, ok := strings.CutPrefix(lines[i], "```")
		if !ok {
			continue
		}
		end := i + 1
		for end < len(lines) && lines[end] != "```" {
			end++
		}
		part := guidePart{section: section, text: strings.Join(lines[i+1:end], "\n") + "\n"}
		i = end
		switch kind {
		case "yaml":
			if name := named.FindStringSubmatch(part.text); name != nil {
				part.file = name[1]
				parts = append(parts, part)
			}
		case "console":
			part.commands = guideCommands(part.text)
			parts = append(parts, part)
		}
	}
	return parts
}

// guideCommands are those of a console block. A line that ends in a backslash goes on in the next.
func guideCommands(text string) []guideCommand {
	var commands []guideCommand
	continued := false
	for line := range strings.Lines(text) {
		command, first := strings.CutPrefix(line, "$ ")
		switch {
		case first:
			commands = append(commands, guideCommand{line: command})
		case continued:
			commands[len(commands)-1].line += line
		case len(commands) > 0:
			commands[len(commands)-1].output += line
		}
		continued = (first || continued) && strings.HasSuffix(line, "\\\n")
	}
	return commands
}

// newGuide makes a cluster, and a directory in which commands are run as somebody would who has cloned the repository.
func newGuide(t *testing.T, document string) *guide {
	t.Helper()
	s := newSite(t)
	must(t, s.CreateNamespace(t.Context(), "shop", map[string]string{"logs": "shipped"}))
	g := &guide{site: s, path: guidePath(document), parts: readGuide(t, document), dir: t.TempDir(), update: os.Getenv("UPDATE_GOLDEN") != ""}
	root, err := support.Root()
	must(t, err)
	must(t, os.Symlink(filepath.Join(root, "manifests"), filepath.Join(g.dir, "manifests")))
	must(t, os.WriteFile(filepath.Join(g.dir, "install.yaml"), []byte(s.rendered(t, "--set", "image.repository=registry.example/gatehouse")), 0o600))
	binary, err := gatehouse.Binary()
	must(t, err)
	programs := t.TempDir()
	kubectl := s.Kubectl(t.Context())
	links := map[string]string{"gatehouse": binary, "kubectl": kubectl.Path}
	links["helm"], err = support.Built("installers", "installers", "helm")
	must(t, err)
	for name, path := range links {
		must(t, os.Symlink(path, filepath.Join(programs, name)))
	}
	home := t.TempDir()
	g.environment = slices.Concat(kubectl.Env, []string{
		"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "LC_ALL=C",
		"HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_CACHE_HOME=" + home, "XDG_DATA_HOME=" + home,
	})
	return g
}

// runPart makes a file, or runs commands and looks at what they print.
func (g *guide) runPart(t *testing.T, part *guidePart) {
	t.Helper()
	if part.file != "" {
		path := filepath.Join(g.dir, part.file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(part.text), 0o600))
		return
	}
	for i := range part.commands {
		command := &part.commands[i]
		got := g.run(t, command)
		if normalize(got) == normalize(command.output) {
			continue
		}
		if !g.update {
			t.Errorf("%s, %q:\n$ %sprinted\n%swant\n%s", filepath.Base(g.path), part.section, command.line, got, command.output)
			continue
		}
		command.output, g.differ = got, true
	}
}

// run runs a command. One that only looks is run again until it prints what it should, because much of what it looks at
// comes about some time after what led to it.
func (g *guide) run(t *testing.T, command *guideCommand) string {
	t.Helper()
	looks := regexp.MustCompile(`^kubectl( -n \S+)? (get|wait|rollout status)\b|--dry-run=server`).MatchString(command.line)
	patience := deadline
	if g.update {
		patience = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		got := g.once(t, command.line)
		if !looks || normalize(got) == normalize(command.output) {
			return got
		}
		select {
		case <-ctx.Done():
			return got
		case <-tick.C:
		}
	}
}

func (g *guide) once(t *testing.T, line string) string {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "sh", "-c", line)
	shell.Dir, shell.Env = g.dir, g.environment
	var output bytes.Buffer
	shell.Stdout, shell.Stderr = &output, &output
	_ = shell.Run() // what it prints tells
	return output.String()
}

// writeBack writes what was printed into the document.
func (g *guide) writeBack(t *testing.T) {
	t.Helper()
	if !g.update || !g.differ {
		return
	}
	text, err := os.ReadFile(g.path)
	must(t, err)
	for _, part := range g.parts {
		if len(part.commands) == 0 {
			continue
		}
		var now strings.Builder
		for _, command := range part.commands {
			fmt.Fprintf(&now, "$ %s%s", command.line, command.output)
		}
		text = bytes.Replace(text, []byte("```console\n"+part.text+"```\n"), []byte("```console\n"+now.String()+"```\n"), 1)
	}
	must(t, os.WriteFile(g.path, text, 0o600))
}

// normalize returns what of an output does not differ from one time to the next: neither moments, ages, addresses, names that are
// made up, counts, nor the width of columns.
func normalize(output string) string {
	for _, one := range []struct{ pattern, is string }{
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`\b(\d+d)?(\d+h)?(\d+m)?\d+s\b|\b\d+[mh]\b`, "AGE"},
		{`\bgatehouse-[a-z0-9]{6,10}-[a-z0-9]{5}\b`, "POD"},
		{`\b\d+\.\d+\.\d+\.\d+\b`, "ADDRESS"},
		{`(?m)^LAST DEPLOYED: .*$`, "LAST DEPLOYED: TIME"},
	} {
		output = regexp.MustCompile(one.pattern).ReplaceAllString(output, one.is)
	}
	var lines []string
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, strings.Join(fields, " "))
		}
	}
	// Counts come later, and are in front of the age.
	return regexp.MustCompile(`( \d+)+ AGE\b`).ReplaceAllString(strings.Join(lines, "\n"), " AGE")
}
