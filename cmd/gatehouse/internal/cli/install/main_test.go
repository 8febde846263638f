package install

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

func TestMain(m *testing.M) {
	support.CleanEnvironment()
	clitest.Main(m, NewManifestsCommand, NewProbeCommand, NewUninstallCommand)
}
