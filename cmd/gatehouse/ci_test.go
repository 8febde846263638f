package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// readYAML decodes a file of the repository.
func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestActionAndHooks runs what the GitHub Action and the pre-commit hooks run.
func TestActionAndHooks(t *testing.T) {
	t.Parallel()
	var action struct {
		Name, Description string
		Inputs            map[string]map[string]any
		Runs              struct {
			Using string
			Steps []map[string]any
		}
	}
	readYAML(t, "action.yml", &action)
	steps := action.Runs.Steps
	script, _ := steps[len(steps)-1]["run"].(string)
	environment, _ := steps[len(steps)-1]["env"].(map[string]any)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	// The program of the tests is gatehouse under this name.
	if err := os.Symlink(program, filepath.Join(temp, "gatehouse")); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(temp, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	run := func(script string, env ...string) (string, bool) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		command := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
		command.Env = append(os.Environ(), append(env, "RUNNER_TEMP="+temp, "PATH="+temp+":"+os.Getenv("PATH"))...)
		out, err := command.CombinedOutput()
		return string(out), err == nil
	}
	pod := write("pod.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: app, image: app, securityContext: {privileged: true}}]}}")
	const config, examples = "CONFIG=../../manifests/policies/pod-security-baseline", "CONFIG=../../manifests/examples/quickstart/config"
	for _, tc := range []struct {
		env  []string
		ok   bool
		want string
	}{
		{[]string{config, "MANIFESTS=", "ARGS="}, true, " 0 failed"},
		{[]string{examples, "MANIFESTS=", "ARGS="}, true, ""},
		{[]string{config, "MANIFESTS=" + pod, "ARGS=--namespace-labels a=b"}, false, "::error "},
		{[]string{"CONFIG=$(touch " + temp + "/injected)", "MANIFESTS=", "ARGS="}, false, ""},
	} {
		for _, value := range tc.env {
			if name, _, _ := strings.Cut(value, "="); environment[name] == nil {
				t.Errorf("the action does not set %s", name)
			}
		}
		if out, ok := run(script, tc.env...); ok != tc.ok || !strings.Contains(out, tc.want) {
			t.Errorf("%q: succeeds: %v, with\n%s", tc.env, ok, out)
		}
	}
	if _, err := os.Stat(filepath.Join(temp, "injected")); err == nil {
		t.Error("the action runs what is in an input")
	}
	var hooks []map[string]any
	readYAML(t, ".pre-commit-hooks.yaml", &hooks)
	for _, hook := range hooks {
		entry, _ := hook["entry"].(string)
		builder, command, _ := strings.Cut(entry, " ")
		if info, err := os.Stat(filepath.Join("..", "..", builder)); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s is no program: %v", builder, err)
		}
		if out, ok := run("gatehouse "+command+` --config "${CONFIG}"`, config); !ok {
			t.Errorf("%s: %s", entry, out)
		}
	}
	if len(hooks) == 0 {
		t.Error("there are no hooks")
	}
}
