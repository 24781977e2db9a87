from __future__ import annotations

from apiserver.apis.meta.users import User
from apiserver.cel import asking
from apiserver.cel.compiler import compile_expression
from apiserver.cel.environment import Environment
from apiserver.cel.library.authz import Answer, Authorizer, Question
from apiserver.cel.library.kubernetes import LIBRARY

ENVIRONMENT = Environment(LIBRARY, frozenset({"authorizer"}))


class Asked:
    def __init__(self) -> None:
        self.questions: list[Question] = []

    async def __call__(self, question: Question) -> Answer:
        self.questions.append(question)
        return Answer(question.verb == "get", "as you are")


async def test_each_question_is_asked_once() -> None:
    asked = Asked()
    answers: dict[Question, Answer] = {}
    user = User("jane", ("dev",), "7", {"scope": ("a",)})
    check = "authorizer.group('apps').resource('deployments').subresource('scale').namespace('x').name('y')"
    program = compile_expression(ENVIRONMENT, f"{check}.check('get').allowed() && {check}.check('get').reason() == 'as you are'")
    for _ in range(2):
        result = await asking.evaluate(program, {"authorizer": Authorizer(user, answers)}, answers, asked)
        assert (result.value, result.cost > 700_000) == (True, True)
    (question,) = asked.questions
    assert (question.user, question.groups, question.extra, question.who) == ("jane", ("dev",), (("scope", ("a",)),), user)
    where = (question.group, question.resource, question.subresource, question.namespace, question.name)
    assert (question.verb, *where) == ("get", "apps", "deployments", "scale", "x", "y")


async def test_a_service_account_is_asked_about_as_itself() -> None:
    asked = Asked()
    answers: dict[Question, Answer] = {}
    program = compile_expression(ENVIRONMENT, "authorizer.serviceAccount('ns', 'sa').path('/healthz').check('get').allowed()")
    result = await asking.evaluate(program, {"authorizer": Authorizer(User("jane"), answers)}, answers, asked)
    assert result.value is True
    assert asked.questions[0].user == "system:serviceaccount:ns:sa"
    assert asked.questions[0].groups == ("system:serviceaccounts", "system:serviceaccounts:ns")


async def test_a_third_check_costs_too_much() -> None:
    asked = Asked()
    answers: dict[Question, Answer] = {}
    program = compile_expression(ENVIRONMENT, "['a', 'b', 'c'].all(p, authorizer.path('/' + p).check('get').allowed())")
    result = await asking.evaluate(program, {"authorizer": Authorizer(User("jane"), answers)}, answers, asked)
    assert (result.error, len(asked.questions)) == ("operation cancelled: actual cost limit exceeded", 2)
