"""From feedback, explanations and advice to the JSON values that tools and `--json` show."""

from __future__ import annotations

from subconscious_mcp.confidence import Judgement
from subconscious_mcp.learning import Decision, Explanation, Noted
from subconscious_mcp.records import Observation
from subconscious_mcp.render import Payload
from subconscious_mcp.tuning import Advice, Row


def noted_payload(noted: Noted | None) -> Payload:
    """Returns what a feedback came to; `noted` is false where there is no such entry."""
    if noted is None:
        return {"noted": False}
    payload: Payload = {
        "noted": True,
        "entry_id": noted.observation.entry_id,
        "similarity": noted.observation.similarity,
        "correct": noted.observation.correct,
        "kept_back": noted.observation.kept_back,
        "right": noted.right,
        "wrong": noted.wrong,
    }
    if noted.learned is not None:
        payload["learned_threshold"] = noted.learned.threshold
    return payload


def observation_payload(said: Observation) -> Payload:
    """Returns one observation, as `feedback --export` prints it."""
    return {
        "entry_id": said.entry_id,
        "similarity": said.similarity,
        "correct": said.correct,
        "ts": said.at,
        "fingerprint": said.fingerprint,
        "kept_back": said.kept_back,
    }


def explanation_payload(found: Explanation | None) -> Payload:
    """Returns an explanation; `found` is false where there is no such entry."""
    if found is None:
        return {"found": False}
    right = sum(one.correct for one in found.counted)
    learned = found.learned
    payload: Payload = {
        "found": True,
        "entry_id": found.entry.id,
        "kind": found.entry.kind,
        "task_text": found.entry.task,
        "stored_at": found.entry.created_at,
        "expires_at": found.entry.expires_at,
        "live": found.live,
        "tags": list(found.entry.tags),
        "feedback": {
            "right": right,
            "wrong": len(found.counted) - right,
            "not_counted": len(found.observations) - len(found.counted),
            "observations": [observation_payload(one) for one in found.observations],
        },
        "threshold": found.threshold,
        "max_error": found.max_error,
        "learned_threshold": None if learned is None else learned.threshold,
        "learned_by": None if learned is None else learned.reason,
        "expected_error": None if learned is None else round(learned.error_before, 6),
        "expected_error_learned": None if learned is None else round(learned.error, 6),
        "needed": found.needed,
        "why": found.why,
    }
    if found.decision is not None:
        payload["query"] = _decision_payload(found.decision)
    return payload


def _decision_payload(decision: Decision) -> Payload:
    best = decision.recall.best
    return {
        "text": decision.query,
        "similarity": decision.similarity,
        "needed": decision.needed,
        "checked": decision.checked,
        **_judgement_payload(decision.judgement),
        "verdict": decision.verdict,
        "hit": decision.recall.hit,
        "served_entry_id": best.entry.id if decision.recall.hit and best is not None else None,
    }


def _judgement_payload(judgement: Judgement) -> Payload:
    return {
        "confidence": round(judgement.confidence, 4),
        "blocked": judgement.blocked,
        "contrasts": [
            {"kind": c.kind, "query": c.query_value, "stored": c.stored_value, "strength": round(c.strength, 4)}
            for c in judgement.contrasts
        ],
    }


def advice_payload(advice: Advice) -> Payload:
    """Returns threshold advice."""
    return {
        "recalls": advice.recalls,
        "skipped_lines": advice.skipped,
        "observations": advice.said,
        "threshold": advice.current,
        "max_error": advice.max_error,
        "recommended": advice.recommended,
        "advice": advice.sentence,
        "thresholds": [_row_payload(row) for row in advice.rows],
    }


def _row_payload(row: Row) -> Payload:
    return {
        "threshold": row.threshold,
        "hits": row.hits,
        "hit_rate": round(row.hit_rate, 6),
        "expected_error": None if row.error is None else round(row.error, 6),
        "interval": None if row.interval is None else [round(end, 6) for end in row.interval],
        "source": row.source,
        "basis": row.basis,
    }
