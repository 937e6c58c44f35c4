"""One line for each training framework: its own hook calls `report`. One module per framework, which imports it.

    from carico_agent.progress.callbacks.keras import KerasProgress
    model.fit(x, y, epochs=5, callbacks=[KerasProgress()])

Why a module each and none here: importing a framework takes seconds, and most images have one of them. The frameworks
are no dependencies of carico; `make test-frameworks` trains with each of them (tests/frameworks).
"""
