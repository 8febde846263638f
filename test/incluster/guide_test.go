package incluster

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestGuides runs the commands of administrators' tasks on a real API server: every ```sh cluster block of the pages below, in their
// order, prints what stands below it, in which "..." is any text. A ```yaml block with the name of a file is that file.
//
// UPDATE_GOLDEN=1 writes what is printed into the pages.
func TestGuides(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pages []string
		// prepare makes what the pages need.
		prepare func(t *testing.T, s *site)
	}{
		"kubectl": {[]string{"install-with-kubectl", "configure-from-files", "upgrade", "uninstall"}, func(*testing.T, *site) {}},
		"outage":  {[]string{"get-past-gatehouse"}, breakDown},
		"resources": {[]string{"configure-with-kubectl", "debug-a-custom-resource"}, func(t *testing.T, s *site) {
			t.Helper()
			s.install(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuide(t)
			test.prepare(t, g.site)
			for _, page := range test.pages {
				g.runPage(t, page)
			}
		})
	}
}

// breakDown stops all replicas while a policy that fails closed is registered.
func breakDown(t *testing.T, s *site) {
	t.Helper()
	s.install(t)
	must(t, s.apply(t.Context(), podPolicy))
	for _, args := range [][]string{
		{"wait", "--for=condition=Degraded=False", "--timeout", deadline.String(), "admissionpolicy/pods"},
		{"-n", "gatehouse-system", "scale", "deployment/gatehouse", "--replicas=0"},
		{"-n", "gatehouse-system", "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=server", "--timeout", deadline.String()},
	} {
		must(t, s.kubectl(t.Context(), "", args...))
	}
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

// guidePart is a block of a page: a file, or commands with what they print.
type guidePart struct {
	file, text string
	commands   string
	// output is the block with what the commands print, if there is one, and begin its first line.
	output            []string
	begin             int
	indentation, page string
}

// guide is a cluster, and a directory in which commands run as for a reader who has cloned the repository.
type guide struct {
	site        *site
	dir         string
	environment []string
	update      bool
}

func guidePath(page string) string { return filepath.Join("..", "..", "docs", "tasks", page+".md") }

var guideFence = regexp.MustCompile("^( *)```(\\w*) ?(.*)$")

// readGuide reads the blocks of a page that are to be run.
func readGuide(t *testing.T, page string) []guidePart {
	t.Helper()
	text, err := os.ReadFile(guidePath(page))
	must(t, err)
	var parts []guidePart
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		fence := guideFence.FindStringSubmatch(lines[i])
		if fence == nil {
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && lines[i] != fence[1]+"```"; i++ {
			lines[i] = strings.TrimPrefix(lines[i], fence[1])
		}
		block := lines[begin:i]
		switch language, parameter := fence[2], fence[3]; {
		case language == "yaml" && parameter != "":
			parts = append(parts, guidePart{file: parameter, text: strings.Join(block, "\n") + "\n"})
		case language == "sh" && parameter == "cluster":
			part := guidePart{commands: strings.Join(block, "\n") + "\n", indentation: fence[1], page: page}
			next := i + 1
			for next < len(lines) && lines[next] == "" {
				next++
			}
			if next < len(lines) && lines[next] == fence[1]+"```console" {
				part.begin = next + 1
				for i = next + 1; i < len(lines) && lines[i] != fence[1]+"```"; i++ {
					part.output = append(part.output, strings.TrimPrefix(lines[i], fence[1]))
				}
			}
			parts = append(parts, part)
		}
	}
	return parts
}

func newGuide(t *testing.T) *guide {
	t.Helper()
	s := newSite(t)
	must(t, s.CreateNamespace(t.Context(), "shop", map[string]string{"logs": "shipped"}))
	g := &guide{site: s, dir: t.TempDir(), update: os.Getenv("UPDATE_GOLDEN") != ""}
	must(t, os.WriteFile(filepath.Join(g.dir, "install.yaml"), []byte(s.rendered(t, "--set", "image.repository=registry.example/gatehouse")), 0o600))
	binary, err := gatehouse.Binary()
	must(t, err)
	programs := t.TempDir()
	kubectl := s.Kubectl(t.Context())
	for name, path := range map[string]string{"gatehouse": binary, "kubectl": kubectl.Path} {
		must(t, os.Symlink(path, filepath.Join(programs, name)))
	}
	home := t.TempDir()
	g.environment = slices.Concat(kubectl.Env, []string{
		"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "LC_ALL=C",
		"HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_CACHE_HOME=" + home, "XDG_DATA_HOME=" + home,
	})
	return g
}

// runPage makes the files of a page, runs its commands, and compares what they print.
func (g *guide) runPage(t *testing.T, page string) {
	t.Helper()
	parts := readGuide(t, page)
	commands := 0
	for i := range parts {
		part := &parts[i]
		if part.file != "" {
			path := filepath.Join(g.dir, part.file)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.WriteFile(path, []byte(part.text), 0o600))
			continue
		}
		commands++
		got := g.run(t, part)
		if part.begin == 0 || part.matches(got) {
			continue
		}
		if want := strings.Join(part.output, "\n"); !g.update || strings.Contains(want, "...") {
			t.Errorf("%s:\n%sprinted\n%s\nwant\n%s", page, part.commands, got, want)
			continue
		}
		part.write(t, got)
	}
	if commands == 0 {
		t.Errorf("%s has no commands", page)
	}
}

// write writes what the commands print into the page, if it has as many lines as before.
func (p *guidePart) write(t *testing.T, output string) {
	t.Helper()
	path := guidePath(p.page)
	text, err := os.ReadFile(path)
	must(t, err)
	now := strings.Split(strings.TrimRight(output, "\n"), "\n")
	if len(now) != len(p.output) {
		t.Errorf("%s:\n%sprints another number of lines: write them into the page:\n%s", p.page, p.commands, output)
		return
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range now {
		lines[p.begin+i] = strings.TrimRight(p.indentation+line, " ")
	}
	must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
}

// matches reports whether an output is the one of the page.
func (p *guidePart) matches(output string) bool {
	want := regexp.QuoteMeta(normalize(strings.Join(p.output, "\n")))
	const some = `\.\.\.`
	want = strings.NewReplacer(some+"\n", `(.*\n)?`, "\n"+some, `(\n.*)?`, some, ".*").Replace(want)
	return regexp.MustCompile(`(?s)^\s*` + want + `\s*$`).MatchString(normalize(output))
}

// run runs commands. Those that only look are run again until they print what they should, because much of what they look at
// comes about some time after what led to it.
func (g *guide) run(t *testing.T, part *guidePart) string {
	t.Helper()
	looks := regexp.MustCompile(`^(kubectl( -n \S+)? (get|wait|rollout status)\b.*|.*--dry-run=server)$`)
	again := part.begin > 0
	for line := range strings.Lines(part.commands) {
		again = again && looks.MatchString(strings.TrimSpace(line))
	}
	patience := deadline
	if g.update {
		patience = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		got := g.once(t, part.commands)
		if !again || part.matches(got) {
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
