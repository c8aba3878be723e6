package workflows

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// workflow is what the tests read of a workflow.
type workflow struct {
	On          map[string]any    `yaml:"on"`
	Env         map[string]string `yaml:"env"`
	Permissions any               `yaml:"permissions"`
	Concurrency map[string]any    `yaml:"concurrency"`
	Jobs        map[string]job    `yaml:"jobs"`
}

type job struct {
	Needs       []string          `yaml:"needs"`
	Environment map[string]string `yaml:"environment"`
	Timeout     any               `yaml:"timeout-minutes"`
	Permissions map[string]any    `yaml:"permissions"`
	Optional    any               `yaml:"continue-on-error"`
	If          string            `yaml:"if"`
	Strategy    struct {
		Matrix map[string]any `yaml:"matrix"`
	} `yaml:"strategy"`
	Steps []step `yaml:"steps"`
}

type step struct {
	Uses     string         `yaml:"uses"`
	Run      string         `yaml:"run"`
	Optional any            `yaml:"continue-on-error"`
	If       string         `yaml:"if"`
	With     map[string]any `yaml:"with"`
}

// readFile returns the text of a file of the repository.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// readWorkflows returns the workflows by name, and their text.
func readWorkflows(t *testing.T) (workflows map[string]workflow, texts map[string]string) {
	t.Helper()
	workflows, texts = map[string]workflow{}, map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yml")
		texts[name] = readFile(t, filepath.Join(".github/workflows", name+".yml"))
		var w workflow
		require.NoError(t, yaml.Unmarshal([]byte(texts[name]), &w), name)
		workflows[name] = w
	}
	require.Equal(t, []string{"ci", "nightly", "release"}, slices.Sorted(maps.Keys(workflows)))
	return workflows, texts
}

var matrixValue = regexp.MustCompile(`\$\{\{ matrix\.(\w+) \}\}`)

// commands returns what the job runs, each value of its matrix put in.
func (j job) commands(t *testing.T) []string {
	t.Helper()
	values := map[string][]string{}
	add := func(key string, value any) {
		if text, ok := value.(string); ok {
			values[key] = append(values[key], text)
		}
	}
	for key, value := range j.Strategy.Matrix {
		list, ok := value.([]any)
		require.True(t, ok, "the matrix's %s is no list", key)
		for _, v := range list {
			fields, ok := v.(map[string]any) // of include
			if !ok {
				fields = map[string]any{key: v}
			}
			for key, value := range fields {
				add(key, value)
			}
		}
	}
	var commands []string
	for _, s := range j.Steps {
		m := matrixValue.FindStringSubmatch(s.Run)
		if m == nil {
			commands = append(commands, s.Run)
			continue
		}
		require.NotEmpty(t, values[m[1]], s.Run)
		for _, value := range values[m[1]] {
			commands = append(commands, strings.ReplaceAll(s.Run, m[0], value))
		}
	}
	return commands
}

// allCommands returns what all jobs of a workflow run.
func (w workflow) allCommands(t *testing.T) (commands []string) {
	t.Helper()
	for _, j := range w.Jobs {
		commands = append(commands, j.commands(t)...)
	}
	return commands
}

// makeCall and testCall match the targets and steps of a command.
var (
	makeCall = regexp.MustCompile(`(?m)\bmake(?: -s)?((?: [\w=-]+)+)`)
	testCall = regexp.MustCompile(`(?m)^scripts/test((?: \w+)*)$`)
	variable = regexp.MustCompile(`^(\w+)=`)
)

// makeWords returns the targets of make that a command calls, and the variables that it sets.
func makeWords(command string) (targets, variables []string) {
	for _, m := range makeCall.FindAllStringSubmatch(command, -1) {
		for word := range strings.FieldsSeq(m[1]) {
			if v := variable.FindStringSubmatch(word); v != nil {
				variables = append(variables, v[1])
			} else {
				targets = append(targets, word)
			}
		}
	}
	return targets, variables
}

// calledSteps returns the steps of scripts/test that a command calls.
func calledSteps(command string) (steps []string) {
	for _, m := range testCall.FindAllStringSubmatch(command, -1) {
		steps = append(steps, strings.Fields(m[1])...)
	}
	return steps
}

// testSteps returns the steps that scripts/test has.
func testSteps(t *testing.T) []string {
	t.Helper()
	list, err := exec.Command(filepath.Join(root, "scripts/test"), "--list").Output()
	require.NoError(t, err)
	return strings.Fields(string(list))
}

func TestCalledCommandsExist(t *testing.T) {
	makefile := readFile(t, "Makefile")
	first := func(pattern string) (words []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(makefile, -1) {
			words = append(words, m[1])
		}
		return words
	}
	targets, settings, steps := first(`(?m)^([\w-]+):`), first(`(?m)^(\w+) \?=`), testSteps(t)
	script := regexp.MustCompile(`(?m)(?:^|["(])(scripts/[\w-]+)`)
	workflows, _ := readWorkflows(t)
	called := map[string]bool{}
	for name, w := range workflows {
		for _, command := range w.allCommands(t) {
			calledTargets, variables := makeWords(command)
			for _, target := range calledTargets {
				called["make "+target] = true
				assert.Contains(t, targets, target, "%s calls make %s", name, target)
			}
			for _, v := range variables {
				assert.Contains(t, settings, v, "%s sets %s", name, v)
			}
			for _, s := range calledSteps(command) {
				called["step "+s] = true
				assert.Contains(t, steps, s, "%s calls scripts/test %s", name, s)
			}
			for _, m := range script.FindAllStringSubmatch(command, -1) {
				called[m[1]] = true
				info, err := os.Stat(filepath.Join(root, m[1]))
				if assert.NoError(t, err, name) {
					assert.NotZero(t, info.Mode().Perm()&0o111, "%s: %s cannot be executed", name, m[1])
				}
			}
		}
	}
	// The patterns above find what is there.
	for _, c := range []string{"make demo", "make test", "make check-packages", "make e2e", "make publish-image", "step race", "step image", "scripts/version"} {
		assert.Contains(t, called, c)
	}
}

// Each step runs in CI, each long test in the night, and each check of what is published in one of them.
func TestEverythingIsCalled(t *testing.T) {
	workflows, _ := readWorkflows(t)
	var steps, nightly, called []string
	for _, command := range workflows["ci"].allCommands(t) {
		steps = append(steps, calledSteps(command)...)
		targets, _ := makeWords(command)
		called = append(called, targets...)
	}
	assert.ElementsMatch(t, testSteps(t), steps, "the steps of scripts/test, each once")
	for _, command := range workflows["nightly"].allCommands(t) {
		targets, _ := makeWords(command)
		nightly = append(nightly, targets...)
	}
	assert.Subset(t, nightly, []string{"fuzz", "soak", "torture", "attack", "reference", "e2e", "tutorial"})

	for _, s := range steps { // the steps image and workflows call these targets
		called = append(called, "check-"+s)
	}
	called = append(called, nightly...)
	var checks []string
	makefile := readFile(t, "Makefile")
	for _, m := range regexp.MustCompile(`(?m)^check-([\w]+):`).FindAllStringSubmatch(makefile, -1) {
		if m[1] != "release" {
			checks = append(checks, m[1])
			assert.Contains(t, called, "check-"+m[1], "make check-%s is called by no workflow", m[1])
		}
	}
	loop := regexp.MustCompile(`for check in ([\w ]+);`).FindStringSubmatch(makefile)
	require.NotNil(t, loop)
	assert.ElementsMatch(t, checks, strings.Fields(loop[1]), "make check-release runs every check")
}

// What starts a workflow, and what a release needs before it publishes.
func TestOrderOfARelease(t *testing.T) {
	workflows, _ := readWorkflows(t)
	assert.Equal(t, map[string]any{"push": map[string]any{"branches": []any{"main"}}, "pull_request": nil}, workflows["ci"].On)
	assert.ElementsMatch(t, []string{"schedule", "workflow_dispatch"}, slices.Collect(maps.Keys(workflows["nightly"].On)))
	r := workflows["release"]
	assert.Equal(t, map[string]any{"push": map[string]any{
		"tags": []any{"v[0-9]+.[0-9]+.[0-9]+", "v[0-9]+.[0-9]+.[0-9]+-rc.[0-9]+"},
	}}, r.On)
	assert.Equal(t, false, r.Concurrency["cancel-in-progress"], "nothing is published by half")
	assert.Equal(t, "${{ github.ref_name }}", r.Env["HITLINE_TAG"])

	before := map[string][]string{} // what a job needs, also by what it needs
	var needed func(id string) []string
	needed = func(id string) (all []string) {
		for _, need := range r.Jobs[id].Needs {
			all = append(append(all, need), needed(need)...)
		}
		return all
	}
	for id := range r.Jobs {
		before[id] = needed(id)
	}
	for id, j := range r.Jobs {
		if slices.Contains([]string{"test", "check", "build"}, id) {
			assert.Empty(t, j.Needs, id)
			assert.Equal(t, map[string]any{"contents": "read"}, j.Permissions, id)
			continue
		}
		assert.Subset(t, before[id], []string{"test", "check", "build"}, "%s publishes what is tested", id)
		for _, command := range j.commands(t) {
			targets, _ := makeWords(command)
			assert.NotContains(t, targets, "snapshot", "%s publishes what build has made", id)
		}
	}
	for _, s := range r.Jobs["pypi"].Steps {
		if strings.HasPrefix(s.Uses, "pypa/gh-action-pypi-publish@") {
			assert.Equal(t, true, s.With["skip-existing"], "the job can be started again")
		}
	}
	assert.Contains(t, before["pypi"], "image", "what cannot be taken back comes after what can be pushed again")
	assert.Subset(t, before["github"], []string{"pypi", "image", "chart"}, "all that the notes name is there")
	assert.Equal(t, "pypi", r.Jobs["pypi"].Environment["name"], "a maintainer confirms it")
	assert.Contains(t, strings.Join(r.Jobs["build"].commands(t), "\n"), `test "v$(scripts/version)" = "$GITHUB_REF_NAME"`)
}

// No job and no step is skipped, or may fail, but what keeps the inputs that fuzzing has found.
func TestNothingIsOptional(t *testing.T) {
	workflows, _ := readWorkflows(t)
	for name, w := range workflows {
		for id, j := range w.Jobs {
			assert.Nil(t, j.Optional, "%s %s", name, id)
			assert.Empty(t, j.If, "%s %s", name, id)
			for _, s := range j.Steps {
				assert.Nil(t, s.Optional, "%s %s", name, id)
				if s.If != "" {
					assert.Contains(t, s.Uses, "actions/upload-artifact@", "%s %s", name, id)
					assert.Contains(t, s.If, "failure() && ", "%s %s", name, id)
				}
			}
		}
	}
}

// Actions are pinned by commit, each by one, with the tag beside it.
func TestActionsArePinned(t *testing.T) {
	workflows, texts := readWorkflows(t)
	uses, pinned := regexp.MustCompile(`(?m)\buses: .*$`), regexp.MustCompile(`^uses: ([\w-]+/[\w-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	commits := map[string]string{}
	for name, text := range texts {
		for _, line := range uses.FindAllString(text, -1) {
			m := pinned.FindStringSubmatch(line)
			if !assert.NotNil(t, m, "%s: %s: want NAME@COMMIT # vX.Y.Z", name, line) {
				continue
			}
			if commits[m[1]] == "" {
				commits[m[1]] = m[2]
			}
			assert.Equal(t, commits[m[1]], m[2], "%s: another commit of %s than elsewhere", name, m[1])
		}
	}
	assert.Contains(t, commits, "actions/checkout")
	for name, w := range workflows { // however it is written
		for id, j := range w.Jobs {
			for _, s := range j.Steps {
				action, commit, _ := strings.Cut(s.Uses, "@")
				assert.True(t, s.Uses == "" || commit != "" && strings.HasPrefix(commits[action], commit+" "), "%s %s uses %s", name, id, s.Uses)
			}
		}
	}
}

// Every job has a timeout, and only those listed here may write.
func TestJobsAreBounded(t *testing.T) {
	workflows, _ := readWorkflows(t)
	compiler := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.`).FindStringSubmatch(readFile(t, "go.mod"))
	require.NotNil(t, compiler)
	writers := []string{}
	for name, w := range workflows {
		assert.NotEmpty(t, w.Concurrency["group"], name)
		switch permissions := w.Permissions.(type) {
		case map[string]any:
			for scope, access := range permissions {
				assert.Equal(t, "contents: read", scope+": "+access.(string), name)
			}
		default:
			t.Errorf("%s: permissions are %v, want contents: read or none", name, permissions)
		}
		for id, j := range w.Jobs {
			assert.NotNil(t, j.Timeout, "%s: job %s has no timeout-minutes", name, id)
			for scope, access := range j.Permissions {
				if access == "write" {
					writers = append(writers, name+" "+id+" "+scope)
				}
			}
			for _, s := range j.Steps {
				switch action, _, _ := strings.Cut(s.Uses, "@"); action {
				case "actions/checkout":
					assert.Equal(t, false, s.With["persist-credentials"], "%s %s", name, id)
				case "actions/setup-go":
					assert.Equal(t, compiler[1], s.With["go-version"], "%s %s", name, id)
					if name == "release" { // a cache can hold what another workflow has put there
						assert.Equal(t, false, s.With["cache"], "%s %s", name, id)
					}
				}
			}
		}
	}
	slices.Sort(writers)
	assert.Equal(t, []string{
		"release chart packages",
		"release github attestations", "release github contents", "release github id-token",
		"release image attestations", "release image id-token", "release image packages",
		"release pypi id-token",
	}, writers)
}

// Dependabot looks at each module.
func TestDependabotSeesEachModule(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `yaml:"package-ecosystem"`
			Directories []string `yaml:"directories"`
		} `yaml:"updates"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, ".github/dependabot.yml")), &config))
	modules := []string{"/"}
	list, err := exec.Command(filepath.Join(root, "scripts/test"), "--modules").Output()
	require.NoError(t, err)
	for module := range strings.FieldsSeq(string(list)) {
		modules = append(modules, "/"+module)
	}
	require.Equal(t, "gomod", config.Updates[0].Ecosystem)
	assert.ElementsMatch(t, modules, config.Updates[0].Directories)
}
