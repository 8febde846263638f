package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// The minor versions of Kubernetes 1 whose functions are compared: those that are
// supported while 1.37 is the latest, and the one that follows.
const (
	oldestServer = 35
	newestServer = 38
)

// versions are the environments in which API servers compile expressions that
// are new to them, made when they are asked for. That of a server of a version is
// the one of the version before, so that the server can be rolled back.
type versions struct {
	environments [newestServer - oldestServer + 1]*cel.Env
}

// all returns the environments, the oldest first.
func (v *versions) all() ([]*cel.Env, error) {
	for i := range v.environments {
		if v.environments[i] != nil {
			continue
		}
		set, err := typecheck.Environment(version.MajorMinor(1, uint(oldestServer+i-1)))
		if err != nil {
			return nil, err
		}
		v.environments[i] = set.NewExpressionsEnv()
	}
	return v.environments[:], nil
}

// lintPortability reports expressions that call functions that API servers of some
// versions do not have.
func (s *subject) lintPortability() {
	if !s.portable {
		return
	}
	environments, err := s.linter.versions.all()
	if err != nil {
		return // The library does not know one of the versions.
	}
	for _, e := range s.expressions {
		var refusing []string
		var missing ast.Expr
		for i, env := range environments {
			walk(e.plain.AST.Expr(), func(part ast.Expr) {
				if part.Kind() != ast.CallKind || env.HasFunction(part.AsCall().FunctionName()) {
					return
				}
				if missing == nil {
					missing = part
				}
				if server := version.MajorMinor(1, uint(oldestServer+i)).String(); !slices.Contains(refusing, server) {
					refusing = append(refusing, server)
				}
			})
		}
		if missing != nil {
			s.reportAt(CELVersion, e, missing.ID(), "do without while such an API server is to take the policy",
				"there is no function %s in Kubernetes %s", missing.AsCall().FunctionName(), strings.Join(refusing, ", "))
		}
	}
}
